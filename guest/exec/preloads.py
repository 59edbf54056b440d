# SPDX-License-Identifier: Apache-2.0
"""What a template's warm-up imports, in interpreters that start after it: contexts, and the default
one after a restart.

The warm-up's statements are kept in a file. A statement runs when code first names what it binds, so
that an interpreter starts as fast as without them.
"""

import builtins

__builtins__ = dict(vars(builtins))  # a copy, which user code does not change

from types import CodeType

FILE = __file__.rpartition("/")[0] + "/preloads"  # lines: a name, a space, a statement
ONLY_AST = 0x400  # a flag of compile()


def statements(node):
    """Yield the names that a statement imports, each with a statement that imports only it."""
    kind = type(node).__name__
    if kind not in ("Import", "ImportFrom"):
        return
    source = "from %s%s " % ("." * node.level, node.module or "") if kind == "ImportFrom" else ""
    for alias in node.names:
        name = alias.asname or (alias.name if source else alias.name.partition(".")[0])
        if name != "*" and source != "from __future__ ":
            renamed = " as " + alias.asname if alias.asname else ""
            yield name, "%simport %s%s" % (source, alias.name, renamed)


def keep(text):
    """Keep the imports at the top level of a warm-up's code, which has run."""
    try:
        tree = compile(text, FILE, "exec", ONLY_AST, dont_inherit=True)
    except SyntaxError:
        return  # it is not plain Python
    lines = ["%s %s\n" % pair for node in tree.body for pair in statements(node)]
    if lines:
        with open(FILE, "a", encoding="utf-8") as file:
            file.writelines(lines)


def read():
    """Return a dict of names to the statements that import them."""
    found = {}
    try:
        with open(FILE, encoding="utf-8") as file:
            for line in file:
                name, _, statement = line.partition(" ")
                found.setdefault(name, []).append(statement)
    except (OSError, ValueError):
        pass  # there is no warm-up, or a program in the sandbox changed the file
    return found


def names_in(code):
    """Yield all names in compiled code: variables, and attributes too."""
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from names_in(constant)


def run_for(code, namespace):
    """Import what the code names, except what the namespace has. What can't be imported any more
    stays undefined.
    """
    if not waiting:
        return
    for name in waiting.keys() & set(names_in(code)):
        for statement in () if name in namespace else waiting[name]:
            try:
                exec(compile(statement, FILE, "exec", dont_inherit=True), namespace)
            except Exception:
                pass
        del waiting[name]  # not before an interrupt


waiting = read()
