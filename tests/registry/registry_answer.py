"""How every host of the stand-in registry answers: the switches that any answer may meet."""

import gzip
import time
from email.utils import formatdate

from registry_content import to_json
from standin_sources import Memory
from standin_wire import Cut, Handler, Plan, parse_range

FILLER = b" " * 65536
HTML = ("<html>\r\n<head><title>{status} {reason}</title></head>\r\n<body>\r\n"
        "<center><h1>{status} {reason}</h1></center>\r\n<hr><center>balancer</center>\r\n"
        "</body>\r\n</html>\r\n")
ENDLESS = 1 << 40
PAD_LINE = 4000


def retry_after(value):
    """Seconds, a date, or "date:SECONDS": the date so many seconds ahead."""
    text = str(value)
    if text.startswith("date:"):
        return formatdate(time.time() + float(text[5:]), usegmt=True)
    return text


class Answerer(Handler):
    """A host. serve() sets the record's kind, repo and path, starts its log, and calls
    answer_with()."""

    def fitting(self, when):
        """A fault's own condition, and that of `authorized`."""
        return lambda fault: (
            (not fault["authorized"] or "authorization" in self.record.headers)
            and (when is None or when(fault)))

    def take_all(self, name, when=None):
        return super().take_all(name, when=self.fitting(when))

    def take(self, name, when=None):
        return super().take(name, when=self.fitting(when))

    def answer_with(self, dispatch):
        """What is switched on for the whole answer, or else what dispatch() sends."""
        self.chunked = False
        self.switched = False
        if self.take("drop"):
            raise Cut()
        fault = self.take("stall", when=lambda f: f["before"])
        if fault:
            self.pause(float(fault["seconds"]))
        hold = self.take("hold", when=lambda f: f["before"])
        if hold:
            self.wait_at(hold)
        fault = self.take("raw")
        if fault:
            self.send_counted(fault["text"].encode("latin-1"), 0)
            raise Cut()
        fault = self.take("status")
        if fault:
            self.switched = True
            self.switched_status(fault)
        else:
            dispatch()
        if self.take("close_quietly"):
            self.close_connection = True

    def fault_headers(self, status):
        """For a subclass: what an error answer that was switched on has beside the rest."""
        return []

    def switched_status(self, fault):
        status = int(fault["status"])
        headers = self.fault_headers(status)
        if fault["retry_after"] is not None:
            headers.append(("Retry-After", retry_after(fault["retry_after"])))
        given = fault.get("headers", {})
        headers = [h for h in headers if h[0].lower() not in {k.lower() for k in given}]
        headers += list(given.items())
        if fault["html"]:
            reason = self.responses.get(status, ("Answer",))[0]
            body = HTML.format(status=status, reason=reason)
            self.respond(status, [("Content-Type", "text/html"), *headers],
                         Memory(body.encode()))
        elif fault["body"] is not None:
            self.respond(status, [("Content-Type", "text/plain"), *headers],
                         Memory(fault["body"].encode()))
        else:
            self.respond_error(status, fault.get("code", "SWITCHED_ON"),
                               fault.get("message", "a switch is on"), headers)

    def respond_error(self, status, code, message, headers=()):
        self.respond_json(status, {"errors": [{"code": code, "message": message}]}, headers)

    def respond_json(self, status, value, headers=()):
        self.respond(status, [("Content-Type", "application/json"), *headers],
                     Memory(to_json(value) + b"\n"))

    # --- a body ---

    def respond_range(self, headers, source, wanted):
        """200, 206 or 416, by a Range header."""
        if not self.standin.options["ranges"]:
            return self.respond(200, headers, source)
        headers = [("Accept-Ranges", "bytes"), *headers]
        span = parse_range(wanted, source.size)
        if wanted and self.take("ignore_range"):
            span = None
        if span is False:
            return self.respond_error(416, "UNKNOWN", "range not satisfiable", [
                ("Content-Range", f"bytes */{source.size}")])
        if span is None:
            return self.respond(200, headers, source)
        start, last = span
        length = last - start + 1
        shown, total = start, source.size
        fault = self.take("range_start")
        if fault:
            shown = max(0, start + int(fault["delta"]))
            if fault.get("body", "shifted") == "shifted":
                start = min(shown, source.size - 1)
                length = min(length, source.size - start)
        fault = self.take("range_total")
        if fault:
            total = fault["total"] if fault["total"] is not None else \
                total + int(fault.get("delta", 1))
        if not self.take("no_content_range"):
            headers = [*headers,
                       ("Content-Range", f"bytes {shown}-{shown + length - 1}/{total}")]
        return self.respond(206, headers, source, start, length)

    def respond(self, status, headers, source, start=0, length=None):
        """Sends source[start:start+length] with a Content-Length, but for the switches. They spare
        the errors that nobody switched on, so that no 401 on the way to a token uses them up."""
        if length is None:
            length = source.size - start
        if status >= 400 and not self.switched:
            return self.start_answer(status, [
                *headers, ("Content-Length", str(length))], bytes(source.read(start, length)))
        headers = self.switched_head(headers)
        fault = self.take("endless")
        if fault:
            return self.respond_endless(fault, status, headers, source, start, length)
        fault = self.take("empty")
        if fault:
            status, source, start, length = int(fault.get("status", 200)), Memory(b""), 0, 0
        fault = self.take("replace")
        if fault:
            source, start = Memory(fault["text"].encode()), 0
            length = source.size
            if fault["type"]:
                headers = [(k, fault["type"] if k == "Content-Type" else v) for k, v in headers]
        if self.take("gzip"):
            source = Memory(gzip.compress(bytes(source.read(start, length)), mtime=0))
            start, length = 0, source.size
            headers.append(("Content-Encoding", "gzip"))
        fault = self.take("truncate")
        if fault:
            length = min(length, int(fault["bytes"]) if fault["bytes"] is not None
                         else int(length * float(fault.get("fraction", 0.5))))
        return self.send_planned(status, headers, source, start, length)

    def switched_head(self, headers):
        fault = self.take("media_type")
        if fault:
            headers = [(k, fault["value"] if k == "Content-Type" else v) for k, v in headers]
        fault = self.take("digest_header")
        if fault:
            value = fault.get("value", "sha256:" + "0" * 64)
            headers = [(k, value if k == "Docker-Content-Digest" else v) for k, v in headers]
        fault = self.take("pad_head")
        if fault:
            left = int(fault["bytes"])
            headers = list(headers)
            while left > 0:
                headers.append(("X-Pad", "p" * min(left, PAD_LINE)))
                left -= PAD_LINE
        return list(headers)

    def send_planned(self, status, headers, source, start, length):
        added = self.take("append")
        extra = int(added["bytes"]) if added else 0
        declared = length + extra
        fault = self.take("length")
        if fault:
            declared = max(0, declared + int(fault["delta"]))
            self.close_connection = True
        if self.take("chunked"):
            self.chunked = self.command != "HEAD"
            headers.append(("Transfer-Encoding", "chunked"))
        elif status != 204:
            headers.append(("Content-Length", str(declared)))
        plan = self.make_plan(start, length, source.size)
        if self.record.kind == "blob":
            self.limit(plan)
        headers = self.edit_headers("headers", headers)
        if plan.events or plan.buckets or self.chunked or extra or length > 65536:
            self.start_answer(status, headers)
            self.send_body(source, start, length, plan, last=not extra)
            if extra:
                self.send_body(Memory(b"+" * extra), 0, extra, Plan())
        else:
            self.start_answer(status, headers, bytes(source.read(start, length)))

    def limit(self, plan):
        options = self.standin.options
        if options["rate"]:
            plan.limit(options["rate"])
        if options["total_rate"]:
            plan.buckets.append(self.standin.total_bucket())

    def respond_endless(self, fault, status, headers, source, start, length):
        """The body that was asked for, and then filler until the client leaves."""
        if fault.get("framing", "chunked") == "chunked":
            headers.append(("Transfer-Encoding", "chunked"))
            self.chunked = True
        else:
            self.close_connection = True
        self.start_answer(status, self.edit_headers("headers", headers))
        if self.command == "HEAD":
            return
        left = int(fault.get("limit", ENDLESS))
        real = min(length, left)
        self.send_body(source, start, real, Plan(), last=False)
        left -= real
        while left > 0:
            self._send(FILLER[:left])
            left -= len(FILLER)
            if self.standin.stopping.is_set():
                raise Cut()
        if self.chunked:
            self.send_counted(b"0\r\n\r\n", 0)

    def write_head(self, head, body):
        fault = self.take("slow_head")
        if not fault:
            return super().write_head(head, body)
        step = int(fault.get("step", 1))
        for at in range(0, len(head), step):
            self.send_counted(head[at:at + step], 0)
            self.pause(float(fault["interval"]))
        return self.send_counted(body, len(body))
