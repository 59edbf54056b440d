# SPDX-License-Identifier: Apache-2.0
"""Imports of the driver's own, which see neither folders nor modules of the user's.

A file of the user's may have the name of a module of the standard library, and user code may have
imported it. The driver then still needs the real module, and must not run the file.
"""

import builtins

__builtins__ = dict(vars(builtins))  # a copy, which user code does not change

import sys
from _frozen_importlib import BuiltinImporter, FrozenImporter
from _frozen_importlib_external import PathFinder
from _thread import get_ident

modules = sys.modules  # user code may put another object in its place
LIBRARY = modules["os"].__file__.rpartition("/")[0]
VERSION = "python%d.%d" % sys.version_info[:2]
FOLDERS = [
    LIBRARY,
    "/".join((sys.base_exec_prefix, sys.platlibdir, VERSION, "lib-dynload")),
    LIBRARY + "/lib-dynload",
]
NAMES = getattr(sys, "stdlib_module_names", frozenset())  # of Python 3.10
FINDERS = tuple(sys.meta_path)


def is_foreign(module):
    """Return whether a module with a name of the standard library comes from elsewhere."""
    try:
        file = vars(module).get("__file__")
    except TypeError:  # None, or an object of the user's
        return True
    return isinstance(file, str) and not file.startswith(tuple(FOLDERS))


def take(tops):
    """Remove the modules of these names, and those below them, and return them."""
    names = [name for name in list(modules) if name.partition(".")[0] in tops]
    return {name: modules.pop(name) for name in names}


def finders():
    """Return the list of the finders that Python asks; None if user code has replaced the list."""
    found = vars(sys).get("meta_path")
    return found if issubclass(type(found), list) else None


class NoUserFolders:
    """While it is entered, its thread imports modules of the standard library from there only."""

    thread = None

    def __enter__(self):
        self.thread = get_ident()
        if finders() is None:
            sys.meta_path = list(FINDERS)
        sys.meta_path.insert(0, self)

    def __exit__(self, *error):
        self.thread = None
        found = finders()
        if found and self in found:
            found.remove(self)

    def find_spec(self, name, path=None, target=None):
        if path is not None or get_ident() != self.thread:
            return None
        for finder in (BuiltinImporter, FrozenImporter):
            spec = finder.find_spec(name)
            if spec is not None:
                return spec
        spec = PathFinder.find_spec(name, FOLDERS)
        if spec is None and name in NAMES:
            raise ModuleNotFoundError("No module named %r" % name, name=name)
        return spec


class StandardLibrary(NoUserFolders):
    """Does so even if user code has imported other modules of these names."""

    def __enter__(self):
        tops = {name for name in NAMES & modules.keys() if is_foreign(modules[name])}
        self.aside = take(tops) if tops else {}
        super().__enter__()

    def __exit__(self, *error):
        super().__exit__()
        if self.aside:
            take({name.partition(".")[0] for name in self.aside})
            modules.update(self.aside)


no_user_folders = NoUserFolders()
standard_library = StandardLibrary()
