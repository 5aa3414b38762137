"""The switches of the stand-in Hub: name -> the parameters it takes (True: must be given), beside
the limits that each takes (standin_faults.LIMITS)."""

FAULTS = {
    # CDN
    "cdn_cut": {"bytes": False, "fraction": False, "offset": False},
    "cdn_reset": {"bytes": False, "fraction": False, "offset": False},
    "cdn_drop": {},
    "cdn_flip": {"offset": True, "xor": False},
    "cdn_length": {"delta": True},
    "cdn_total": {"delta": False, "total": False},
    "cdn_ignore_range": {},
    "cdn_range_start": {"delta": True, "body": False},
    "cdn_stall": {"seconds": True, "bytes": False, "fraction": False, "offset": False},
    "cdn_throttle": {"rate": True},
    "cdn_status": {"status": True, "headers": False, "body": False},
    "cdn_headers": {"set": False, "drop": False},
    "cdn_hold": {"bytes": False, "fraction": False, "offset": False, "before": False},
    # signing, decided when the Hub writes the redirect
    "url_expired": {},
    "url_uses": {"uses": True},
    # Hub, any answer
    "hub_status": {"status": True, "code": False, "message": False,
                   "retry_after": False, "reset": False, "headers": False, "body": False},
    "hub_headers": {"set": False, "drop": False},
    "hub_stall": {"seconds": True},
    "hub_hold": {},
    "hub_drop": {},
    "hub_body": {"mode": True, "raw": False},
    # Hub, listings
    "tree_add": {"entry": True},
    "tree_edit": {"file": True, "set": False, "drop": False},
    "tree_lfs_oid": {"value": True, "file": False},
    "tree_duplicate": {"file": True},
    "tree_loop": {},
    "tree_next": {"url": True},
    # Hub, files
    "small_flip": {"offset": False},
    "small_cut": {"bytes": False, "fraction": False},
    "resolve_location": {"url": True, "status": False},
    "redirect_loop": {"status": False},
}
