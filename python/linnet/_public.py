"""The functions people call: an error of the caller's comes out of the function itself, without what is inside it."""

import functools
import logging

_log = logging.getLogger("linnet")


def public(function):
    """`function`, whose ValueErrors and TypeErrors have a traceback that ends in it. The logger `linnet` has the rest
    (level DEBUG)."""

    @functools.wraps(function)
    def outer(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            _log.debug("%s: %s", function.__name__, error, exc_info=error)
            raise error.with_traceback(None) from None

    # Its name in tracebacks, and code of its own: torch.compile keeps what it made by code.
    outer.__code__ = outer.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
    return outer
