"""Running graphs: executables and how they are called, and what they call in Python."""
