"""The stages, one module each: read, call a pure function, write."""
