"""Hostile input: written with bad intent, or damaged by a disk or a kill.

``python -m tilewright.testing.hostile scripts --count 5000 --seed 0`` makes so many cases of a
kind and lets each be read in a child process under limits of time and memory, with an audit hook
that sees what is run, opened or imported. A case must end in one of the outcomes that its kind
names (a program, or an error of the project); everything else is a fault: another exception, a
dead process, one that takes too long, an event that nothing should have caused.

How to add a kind: a module here that ends in ``KIND = Kind(...)`` (see ``kind.py``), and a row in
``__main__.KINDS``. Two functions make a kind:

- ``make(rng) -> Case`` draws one case from a generator seeded with the command's seed and the
  case's number, and from nothing else, so that ``--only NUMBER`` makes it again. It runs in the
  parent, without limits; what it needs for a long time it builds once.
- ``check(payload) -> str`` runs in the child, under limits, and returns the outcome's name. It
  raises :class:`Fault` where something is wrong.
"""
