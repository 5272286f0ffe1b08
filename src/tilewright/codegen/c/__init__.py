"""Code generation for languages like C: what they share, and portable C itself."""
