"""Control across processes: what changes in one is heard in the others (O5)."""

from otel_loopguard.remote.names import wire_name
from otel_loopguard.remote.notice import Notice
from otel_loopguard.remote.sending import KIND, send
from otel_loopguard.remote.sharing import Sharing

__all__ = ["KIND", "Notice", "Sharing", "send", "wire_name"]
