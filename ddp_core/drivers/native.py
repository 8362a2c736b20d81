"""Native wrapper: gradients are synchronised when ``backward()`` returns, as with torch's DDP.

This style has no mark of its own: it drives whatever can be called on inputs and fits no other style.
"""

from __future__ import annotations

from ddp_core.driver import Driver

DRIVER = Driver
