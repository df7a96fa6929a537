"""The compiled core, or what to do where there is none: Python itself would guess at a circular import."""

try:
    import fastshard._core as _core
except ImportError as error:
    raise ImportError(
        f"fastshard's compiled core can't be loaded ({error}). In a source tree, build it with: pip install -e . "
        "(needs a C++17 compiler); it must be built for the Python that imports it"
    ) from error

__all__ = ["_core"]
