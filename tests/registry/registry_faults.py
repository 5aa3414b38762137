"""The switches of the stand-in registry: name -> the parameters it takes (True: must be given),
beside the limits that each takes (standin_faults.LIMITS and `authorized`). README.md says what each
does."""

AT = {"bytes": False, "fraction": False, "offset": False}

OWN = {
    # the connection and the pace
    "drop": {},
    "cut": AT,
    "reset": AT,
    "stall": {"seconds": True, "before": False, **AT},
    "hold": {"before": False, "until": False, **AT},
    "throttle": {"rate": True},
    "slow_head": {"interval": True, "step": False},
    "close_quietly": {},
    # the answer as a whole
    "status": {"status": True, "code": False, "message": False, "headers": False,
               "body": False, "html": False, "retry_after": False},
    "raw": {"text": True},
    "empty": {"status": False},
    "replace": {"text": True, "type": False},
    "endless": {"framing": False, "limit": False},
    # its head
    "headers": {"set": False, "drop": False},
    "pad_head": {"bytes": True},
    "digest_header": {"value": False},
    "media_type": {"value": True},
    # its body
    "flip": {"offset": True, "xor": False},
    "truncate": {"bytes": False, "fraction": False},
    "append": {"bytes": True},
    "length": {"delta": True},
    "chunked": {},
    "gzip": {},
    # ranges
    "ignore_range": {},
    "range_start": {"delta": True, "body": False},
    "range_total": {"delta": False, "total": False},
    "no_content_range": {},
    # redirects and signed URLs
    "location": {"url": True, "status": False},
    "redirect_loop": {"status": False},
    "redirect_chain": {"hops": True},
    "url_expired": {},
    "url_uses": {"uses": True},
    # tokens
    "bad_token": {},
    # listings
    "page_loop": {},
    "page_next": {"url": True},
}

FAULTS = {name: {**parameters, "authorized": False} for name, parameters in OWN.items()}
