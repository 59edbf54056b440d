# SPDX-License-Identifier: Apache-2.0
"""What notebooks add to Python: the value of the last expression, `await` at the top level, `!cmd`,
`%pip` and a few other magics, and `%%bash`.

Code is always compiled as plain Python first. It is translated only where that fails, line by line:
a line that the compiler rejects and that begins with "!" or "%" becomes a call of `__ramet__`. So
valid Python is never changed, and lines within strings are not either.
"""

import builtins

__builtins__ = dict(vars(builtins))  # a copy, which user code does not change

import re
import sys
from _ast import Assign, Name, Store
from os import environ
from posix import chdir, getcwd, listdir, stat
from posixpath import expanduser

from ramet_imports import no_user_folders, standard_library

ONLY_AST, TOP_LEVEL_AWAIT = 0x400, 0x2000  # flags of compile()
LAST = "__ramet_last__"
PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")
COROUTINE = 0x80  # in co_flags
SPLIT_MAX = 1 << 20  # characters; longer code has no value of the last expression
LINES_MAX = 1000  # translated lines in one call
COMMAND = re.compile(r"(\s*)!(.*)")
MAGIC = re.compile(r"(\s*)%(\w+)(?:\s+(.*))?$")
ASSIGNED = re.compile(r"(\s*[\w.,][\w., \t]*=\s*)!(.*)")
CELL = re.compile(r"\s*%%(bash|sh)[ \t]*\r?\n")
VARIABLE = re.compile(r"(?<![$\\{])\{([A-Za-z_]\w*)\}(?!\})|(?<!\\)\$([A-Za-z_]\w*)")


class Program:
    """Compiled code. Its last expression, if the value is wanted, is an assignment to LAST."""

    def __init__(self, code):
        self.code = code

    def run(self, namespace):
        """Run the code and return the value of the last expression, or None."""
        namespace.pop(LAST, None)
        value = eval(self.code, namespace)
        if self.code.co_flags & COROUTINE:
            wait_for(value)
        return namespace.pop(LAST, None)


# ---- the last expression ----------------------------------------------------------------------


def build(text, name, split, flags):
    if split and len(text) <= SPLIT_MAX and not text.rstrip().endswith(";"):
        try:
            return Program(keep_last(text, name, flags))
        except RecursionError:
            pass  # a tree has less depth than the compiler: such code has no value
    return Program(compile(text, name, "exec", flags, dont_inherit=True))


def keep_last(text, name, flags):
    """Compile code that assigns the value of its last expression, if it ends in one. The text is
    compiled only once, since its SyntaxWarnings are printed each time.
    """
    tree = compile(text, name, "exec", flags | ONLY_AST, dont_inherit=True)
    last = tree.body[-1] if tree.body else None
    if type(last).__name__ == "Expr":
        place = {field: getattr(last, field) for field in PLACE}
        target = Name(LAST, Store(), **place)
        tree.body[-1] = Assign([target], last.value, **place)
    return compile(tree, name, "exec", flags, dont_inherit=True)


def build_any(text, name, split):
    """Compile as plain Python, else with `await` at the top level."""
    with no_user_folders:  # Python imports modules to print a SyntaxWarning
        return build_plain(text, name, split)


def build_plain(text, name, split):
    try:
        return build(text, name, split, 0)
    except SyntaxError as error:
        plain = error
    if "await" in text or "async" in text:
        try:
            return build(text, name, split, TOP_LEVEL_AWAIT)
        except SyntaxError:
            pass
    raise plain.with_traceback(None)


# ---- translation ------------------------------------------------------------------------------


def translate(text, name, split):
    """Compile code that is not plain Python. Return None if no line of it can be translated; raise
    the SyntaxError of another line.
    """
    cell = CELL.match(text)
    if cell:
        script = "__ramet__.cell(%r)" % text[cell.end() :]
        return build(script, name, False, 0)
    lines = text.split("\n")
    for turn in range(LINES_MAX):
        try:
            return build_any("\n".join(lines), name, split)
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or not translate_line(lines, at):
                if not turn:
                    return None
                raise
    return None


def translate_line(lines, at):
    """Translate a line with those that continue it. Return False if it is not such a line."""
    line, end = lines[at].rstrip("\r"), at + 1
    if not (COMMAND.match(line) or MAGIC.match(line) or ASSIGNED.match(line)):
        return False
    while line.endswith("\\") and end < len(lines):
        line += "\n" + lines[end].rstrip("\r")
        end += 1
    lines[at] = translated(line)
    for rest in range(at + 1, end):
        lines[rest] = ""  # keeps the numbers of the lines
    return True


def translated(line):
    first, _, rest = line.partition("\n")
    for pattern, call in ((COMMAND, "%s__ramet__.command(%r)"), (ASSIGNED, "%s__ramet__.lines(%r)")):
        found = pattern.match(first)
        if found:
            return call % (found[1], found[2] + ("\n" + rest if rest else ""))
    found = MAGIC.match(first)
    words = (found[3] or "") + ("\n" + rest if rest else "")
    return "%s__ramet__.magic(%r, %r)" % (found[1], found[2], words)


# ---- what translated lines call ---------------------------------------------------------------


class Notebook:
    """`__ramet__` in the user's builtins."""

    def __init__(self, namespace, run):
        self.namespace = namespace
        self.run = run  # of the driver: runs bytes in bash; returns exit code and output

    def filled(self, command):
        """Replace {name} and $name by variables of the user's; leave others to bash."""

        def value(found):
            name = found[1] or found[2]
            return str(self.namespace[name]) if name in self.namespace else found[0]

        return VARIABLE.sub(value, command)

    def spawn(self, command, *words, keep=False):
        """Run a command in bash and return its standard output, if it is to be kept."""
        code, out = self.run(command.encode("utf-8", "surrogateescape"), *words, keep=keep)
        self.namespace["_exit_code"] = code
        return out

    def command(self, command):
        """Run a command in bash. Its output is the call's."""
        self.spawn(self.filled(command))

    def lines(self, command):
        """Run a command and return the lines of its standard output."""
        return self.spawn(self.filled(command), keep=True).decode("utf-8", "replace").splitlines()

    def cell(self, script):
        code, _ = self.run(script.encode("utf-8", "surrogateescape"))
        if code:
            with standard_library:
                from subprocess import CalledProcessError
            raise CalledProcessError(code, "%%bash")

    def magic(self, name, words):
        action = getattr(self, "magic_" + name, None)
        if action is None:
            known = ", ".join("%" + n[6:] for n in dir(self) if n.startswith("magic_"))
            raise NameError("the magic %%%s does not exist here; there are %s" % (name, known))
        return action(words.strip())

    def magic_pip(self, words):
        """Run pip for this interpreter. What it installs can be imported at once."""
        before = path_files()
        # With -P, pip imports no module from the call's folder.
        option = "-P " if sys.version_info >= (3, 11) else ""
        self.spawn('"$0" %s-m pip %s' % (option, self.filled(words)), sys.executable)
        for finder in sys.meta_path:
            if hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()
        add_paths(before)

    def magic_cd(self, words):
        folder = self.filled(words).strip("\"'") or "~"
        if folder == "~" or folder.startswith("~/"):
            folder = environ.get("HOME", "/") + folder[1:]
        chdir(expanduser(folder) if folder.startswith("~") else folder)

    def magic_pwd(self, words):
        return getcwd()

    def magic_matplotlib(self, words):
        """Do nothing: figures are shown anyway."""


# ---- packages ---------------------------------------------------------------------------------


def site_module():
    with standard_library:
        import site
    return site


def site_folders():
    """Yield the folders of installed packages that exist, with the names in them."""
    site = site_module()
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    for folder in (*site.getsitepackages(), *users):
        try:
            yield folder, listdir(folder)
        except OSError:
            pass


def path_files():
    """Return the .pth files, which extend sys.path, each with values that change when it does."""
    found = {}
    for folder, names in site_folders():
        for name in names:
            if name.endswith(".pth"):
                status = stat(folder + "/" + name)
                found[folder, name] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def add_paths(before):
    """Do what Python does at its start: add folders that are new, and run .pth files that are."""
    site = site_module()
    added = [folder for folder, _ in site_folders() if folder not in sys.path]
    for folder in added:
        site.addsitedir(folder)
    for (folder, name), version in path_files().items():
        if folder not in added and before.get((folder, name)) != version:
            site.addpackage(folder, name, None)


# ---- await ------------------------------------------------------------------------------------

loop = None


def make_loop():
    """Make the event loop that all calls share, or keep it. It is not set as the thread's: an `await`
    changes nothing for later code.
    """
    global loop
    if loop is not None and not loop.is_closed():
        return
    with standard_library:
        from asyncio import new_event_loop

        loop = new_event_loop()


def wait_for(coroutine):
    """Run a coroutine in the shared event loop. Tasks that it leaves continue during the next call
    that awaits something.
    """
    try:
        make_loop()
    except BaseException:
        coroutine.close()
        raise
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        if not task.done():
            cancel(task)
        raise without_loop(error)


def cancel(task):
    """End a task that an interrupt has left, so that its cleanup runs in this call."""
    task.cancel()
    try:
        loop.run_until_complete(task)
    except BaseException:
        pass


def without_loop(error):
    """Remove the frames of asyncio and of this module that come before the user's."""
    tb = error.__traceback__
    while tb and not tb.tb_frame.f_code.co_filename.startswith("<call "):
        tb = tb.tb_next
    return error.with_traceback(tb) if tb else error


def start(namespace, run):
    builtins.__ramet__ = Notebook(namespace, run)
