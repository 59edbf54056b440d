# SPDX-License-Identifier: Apache-2.0
"""Runs the code of all calls in one long-lived process, which the agent starts and controls.

Both exchange frames of proto/agent.h on descriptor CTL. The user's code shares this process and may
change anything in it. So the driver binds the names that it needs before any user code runs, and
repairs what a call needs before the call starts.
"""

import builtins

__builtins__ = dict(vars(builtins))  # a copy, which user code does not change

import sys

# PYTHONPATH and the like are for the user's code.
FOLDER = __file__.rpartition("/")[0]
users_path, sys.path = sys.path, [FOLDER]
writes_bytecode, sys.dont_write_bytecode = not sys.dont_write_bytecode, True
from ramet_imports import modules, standard_library

with standard_library:
    import codecs
    import gc
    import linecache
    import os
    import traceback
    from io import RawIOBase, StringIO, TextIOWrapper
    from struct import Struct
    from types import ModuleType

    # The C modules: the Python ones around them run code that users may have replaced.
    from _signal import SIG_BLOCK, SIG_DFL, SIG_SETMASK, SIGCHLD, SIGINT, SIGKILL, SIGPIPE, SIGSTOP
    from _signal import SIGURG, SIGXFSZ
    from _signal import default_int_handler, getsignal, pthread_sigmask, valid_signals
    from _signal import signal as set_handler
    from _thread import start_new_thread
    from fcntl import F_DUPFD_CLOEXEC, fcntl, ioctl
    from mmap import PROT_READ, mmap
    from posix import (
        O_CLOEXEC, O_DIRECTORY, O_PATH, O_RDONLY, POSIX_SPAWN_DUP2, POSIX_SPAWN_OPEN,
        WEXITSTATUS, WNOHANG, WIFSIGNALED, WTERMSIG, _exit, chdir, close, dup2, fchdir, fstat, getpid,
        isatty, kill, memfd_create, open as open_file, pipe, posix_spawn, putenv, read,
        set_blocking, set_inheritable, unsetenv, urandom, waitpid, write,
    )
    from select import POLLOUT, poll
    from time import sleep

    import ramet_charts
    import ramet_imports
    import ramet_preloads as preloads
    import ramet_results as results
    import ramet_syntax as syntax

sys.path, sys.dont_write_bytecode = users_path, not writes_bytecode

CTL, PIPE_OUT, PIPE_ERR, PROGRESS, STARTS = 1000, 1001, 1002, 1003, 1004  # as in driver.c
EXEC, CODE, RESEED = 2, 3, 5
PONG, EXIT, DONE, ERROR = 64, 67, 68, 69
RESULT, FAULT, BUNDLE = 84, 85, 86
DROPPED = 2  # in a RESULT frame: forget the bundle
PYTHON = 0
HEADER = Struct("<IBBH")
REQUEST = Struct("<BBIIQ")
U32 = Struct("<I")
EXITED = Struct("<iB")
FAILED = Struct("<II")
PAYLOAD_MAX = 65536
FRAME_MAX = HEADER.size + PAYLOAD_MAX
LAST_MAX = 32768  # bytes of text in an EXIT frame
EMPTY = b"\0\0\0\0"  # FIONREAD's answer for an empty pipe
BASH = "/bin/bash"
ARGUMENT_MAX = 128 * 1024 - 1  # the kernel's MAX_ARG_STRLEN without the final zero
SCRIPT_FD = 250
ALL_SIGNALS = valid_signals() - {SIGKILL, SIGSTOP}
RESTORED_SIGNALS = (SIGPIPE, SIGXFSZ)  # that Python ignores
HELD_SIGNALS = ALL_SIGNALS - {SIGINT}
FRAMES_MAX = 100  # of a traceback that is printed without the module traceback
SOURCES_MAX = 32 << 20  # characters of earlier calls kept for tracebacks
WANTS_RESULTS, PREPARES = 1, 2  # flags of a request
FIONREAD = 0x541B
HIGH_FD = 1006  # user code that closes descriptors in a loop seldom goes as far
OUR_FILES = {
    module.__file__ for module in (ramet_charts, ramet_imports, preloads, results, syntax)
} | {__file__}
# User code may replace os.environ and os.putenv; this stays the content of the first os.environ.
environment = os.environ._data
describe_exception = traceback.TracebackException
write_unraisable = sys.__unraisablehook__
set_trace, set_profile = sys.settrace, sys.setprofile

main = ModuleType("__main__")
driver_pid = getpid()
progress = memoryview(mmap(PROGRESS, 32, prot=PROT_READ)).cast("Q")  # see driver_pipes in driver.h


# ---- standard streams -------------------------------------------------------------------------


def wait_until_read(pipe):
    """Wait until the agent has read the text that is in `pipe` now, or is going to read it before
    the other pipe, so that later text in the other pipe stays behind it. Do not wait for more than
    PAYLOAD_MAX of the text that other processes write meanwhile.
    """
    delay = 0.00005
    try:
        size = ioctl(pipe, FIONREAD, EMPTY)
        if size == EMPTY:
            return
        # The agent may have taken out up to PAYLOAD_MAX bytes that it has not counted yet.
        end = bytes_read(pipe) + int.from_bytes(size, "little") + PAYLOAD_MAX
        while bytes_read(pipe) < end and not is_older(pipe) and not is_empty(pipe):
            sleep(delay)
            delay = min(2 * delay, 0.005)
    except OSError:
        pass  # user code closed our copy of the pipe: only the order is lost


def is_empty(pipe):
    return ioctl(pipe, FIONREAD, EMPTY) == EMPTY


def bytes_read(pipe):
    return progress[pipe - PIPE_OUT]


def is_older(pipe):
    """Return whether the agent empties `pipe` before it reads the other one."""
    return progress[2] == pipe - PIPE_OUT + 1


def wait_for_results():
    """Wait until the agent has taken all results, so that later text stays behind them."""
    delay = 0.00005
    while progress[3] < bundles.taken:
        sleep(delay)
        delay = min(2 * delay, 0.005)


class PipeWriter(RawIOBase):
    """Standard output or error: unbuffered, and in exact order with the other stream."""

    def __init__(self, fd, name, other_pipe):
        self.fd = fd
        self.name = name
        self.mode = "wb"
        self.other_pipe = other_pipe
        self.before = None  # a stream whose buffered text precedes what is written here

    def fileno(self):
        return self.fd

    def writable(self):
        return True

    def isatty(self):
        return isatty(self.fd)

    def write(self, data):
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self.before is not None and not is_closed(self.before):
            self.before.flush()
        if progress[3] < bundles.taken:
            wait_for_results()
        wait_until_read(self.other_pipe)
        try:
            done = write(self.fd, data)
        except BlockingIOError:
            done = 0
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        if done < size:
            self.write_rest(memoryview(data).cast("B")[done:])
        return size

    def write_rest(self, view):
        while view:
            try:
                view = view[write(self.fd, view) :]
            except BlockingIOError:  # a child made the shared pipe non-blocking
                ready = poll()
                ready.register(self.fd, POLLOUT)
                ready.poll()


def encode_odd(error):
    """Encode escaped bytes as themselves and other surrogates as three bytes; never fail."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    out = b""
    for odd in error.object[error.start : error.end]:
        escaped = "\udc80" <= odd <= "\udcff"
        out += odd.encode("utf-8", "surrogateescape" if escaped else "surrogatepass")
    return out, error.end


class Text(TextIOWrapper):
    """sys.stdout or sys.stderr. Only sys.stdout buffers, up to the end of a line, so the two are in
    order within lines too.
    """

    def __init__(self, fd, name, other_pipe):
        super().__init__(
            PipeWriter(fd, name, other_pipe),
            "utf-8",
            "ramet-odd",
            newline="\n",
            line_buffering=True,
            write_through=fd == 2,
        )
        self.mode = "w"


def is_closed(stream):
    try:
        return stream is None or stream.closed
    except AttributeError:
        return False  # an object of the user's
    except ValueError:
        return True  # its buffer was detached


class Streams:
    """The driver's three standard streams. Streams that user code puts in their place are kept."""

    def __init__(self):
        codecs.register_error("ramet-odd", encode_odd)
        # Reaches the agent whatever user code does to descriptors 1 and 2.
        self.direct_err = PipeWriter(PIPE_ERR, "<stderr>", PIPE_OUT)
        self.last = b""  # text of the call, after everything in the pipes
        self.out = self.err = None

    def repair(self):
        """Reopen what a call closed; done after each call, when nobody waits."""
        self.repair_descriptors()
        if is_closed(self.out) or is_closed(self.err):
            self.out = sys.__stdout__ = Text(1, "<stdout>", PIPE_ERR)
            self.err = sys.__stderr__ = Text(2, "<stderr>", PIPE_OUT)
            self.err.buffer.before = self.out
            sys.stdout = sys.stderr = None
        if is_closed(getattr(sys, "stdout", None)):
            sys.stdout = self.out
        if is_closed(getattr(sys, "stderr", None)):
            sys.stderr = self.err
        if is_closed(getattr(sys, "stdin", None)):  # exit() closes it
            sys.stdin = sys.__stdin__ = open(0, "r", encoding="utf-8", closefd=False)

    @staticmethod
    def repair_descriptors():
        for fd, source in ((0, None), (1, PIPE_OUT), (2, PIPE_ERR)):
            try:
                fstat(fd)
            except OSError:
                source = open_file("/dev/null", O_RDONLY) if source is None else source
                dup2(source, fd)
                if source not in (fd, PIPE_OUT, PIPE_ERR):
                    close(source)
        set_blocking(PIPE_OUT, True)
        set_blocking(PIPE_ERR, True)

    def flush(self):
        users = getattr(sys, "stdout", None), getattr(sys, "stderr", None)
        for stream in (*users, self.out, self.err):
            try:
                if stream is not None:
                    stream.flush()
            except BaseException:
                pass  # a stream of the user's, or descriptor 1 is a file on a full disk

    def flush_printed(self):
        """Flush what the call has printed. Unlike flush, it can be interrupted."""
        users = getattr(sys, "stdout", None), getattr(sys, "stderr", None)
        for stream in (*users, self.out, self.err):
            try:
                if stream is not None:
                    stream.flush()
            except Exception:
                pass

    def report(self, text):
        """Write text to the call's stderr, after everything printed before; once per call. If
        possible, it is sent in the EXIT frame, so that no pipe has to be waited for.
        """
        self.flush()
        data = text.encode("utf-8", "ramet-odd")
        if getpid() == driver_pid and len(data) <= LAST_MAX:
            self.last = data
        else:
            self.direct_err.write(data)

    def take_last(self):
        data, self.last = self.last, b""
        return data


streams = Streams()


# ---- frames -----------------------------------------------------------------------------------


received = b""


def read_exactly(size):
    global received
    while len(received) < size:
        more = read(CTL, FRAME_MAX)
        if not more:
            _exit(0)  # the agent is gone
        received += more
    data, received = received[:size], received[size:]
    return data


def read_frame():
    size, kind, _, _ = HEADER.unpack(read_exactly(HEADER.size))
    return kind, read_exactly(size)


def frame(kind, payload):
    return HEADER.pack(len(payload), kind, 0, 0) + payload


def send_frame(kind, payload=b"", before=b""):
    data = before + frame(kind, payload)
    while data:
        data = data[write(CTL, data) :]


def announce_start(bash_group):
    """Tell the agent that SIGINT now reaches the user's code. Group 0: it runs in this process."""
    write(STARTS, U32.pack(bash_group))


class Bundles:
    """Sends results to the agent. Runs in the user's code, and may be interrupted between frames."""

    def __init__(self):
        self.begin()

    def begin(self):
        """Start a call: the agent has taken all results of earlier ones."""
        self.taken = progress[3]  # what the agent's count will be once it has taken all results
        self.open = False  # a bundle was begun and not ended
        self.last = b""  # a whole result that is sent with the next frame, to wake the agent once

    @staticmethod
    def write(data):
        """Send frames with one system call: a poll has found room for them in the socket."""
        ready = poll()
        ready.register(CTL, POLLOUT)
        ready.poll()
        done = write(CTL, data)
        while done < len(data):
            done += write(CTL, data[done:])

    def take_last(self):
        data, self.last = self.last, b""
        return data

    def end(self, frames):
        self.write(frames)
        # An interrupt here does no harm: the next bundle first ends this one again, and the count
        # is right again in the next call.
        self.taken += 1
        self.open = False

    def send(self, data, end):
        if self.open:
            self.end(frame(RESULT, bytes((DROPPED,))))
        if self.last:
            self.end(self.take_last())
        ending = frame(FAULT, b"\0") if end == results.FAULT else frame(RESULT, bytes((end,)))
        if len(data) <= PAYLOAD_MAX and end == results.MAIN:
            self.last = frame(BUNDLE, data) + ending
        elif len(data) <= PAYLOAD_MAX:
            self.end(frame(BUNDLE, data) + ending)
        else:
            self.open = True
            for at in range(0, len(data), PAYLOAD_MAX):
                self.write(frame(BUNDLE, data[at : at + PAYLOAD_MAX]))
            self.end(ending)


bundles = Bundles()


class Request:
    """An AGENT_EXEC; the agent has checked its layout."""

    def __init__(self, payload):
        self.payload = payload
        self.at = REQUEST.size
        self.language, flags, _, self.code_size, _ = REQUEST.unpack_from(payload)
        self.cwd = self.text()
        self.env = [(self.text(), self.text()) for _ in range(self.number())]
        self.wants_results = flags & WANTS_RESULTS and self.language == PYTHON
        self.prepares = flags & PREPARES
        self.payload = None

    def number(self):
        (value,) = U32.unpack_from(self.payload, self.at)
        self.at += U32.size
        return value

    def text(self):
        size = self.number()
        self.at += size
        return self.payload[self.at - size : self.at]

    def read_code(self):
        """Return the code, or None when its sender left before the end."""
        parts = []
        missing = self.code_size
        while missing:
            _, part = read_frame()
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


# ---- interrupts -------------------------------------------------------------------------------


def ignore_interrupt(number, frame):
    """Handle SIGINT between calls, and SIGURG. Not SIG_IGN, which child processes would inherit."""


class Signals:
    """Runs the user's handlers during calls only: in the driver's own code, an exception of theirs
    would end the process. Signals between calls are handled before the next call's code.
    """

    def __init__(self):
        self.mask = set()  # the user's signal mask; None while it is in force

    def hold(self):
        """Block signals. May raise what a handler raises; can then be called again."""
        if self.mask is None:
            self.mask = pthread_sigmask(SIG_BLOCK, ())
        pthread_sigmask(SIG_BLOCK, HELD_SIGNALS)

    def hold_handled(self):
        """Unblock signals without a handler. Called after the answer, for it takes a while."""
        handled = {number for number in ALL_SIGNALS if callable(getsignal(number))}
        pthread_sigmask(SIG_SETMASK, self.mask | handled - {SIGINT})

    def release(self):
        while True:
            try:
                if self.mask is not None:
                    pthread_sigmask(SIG_SETMASK, self.mask - {SIGINT})
                self.mask = None
                return
            except BaseException:
                pass  # the exception belongs to no call; another may follow


signals = Signals()


def interrupts_on():
    """Make the call interruptible, whatever earlier code did to SIGINT and SIGURG. The latter needs
    a handler to interrupt a system call, see driver_nudge.
    """
    signals.release()
    if not callable(getsignal(SIGURG)):
        set_handler(SIGURG, ignore_interrupt)
    set_handler(SIGINT, default_int_handler)


def interrupts_off():
    """Prevent KeyboardInterrupt from here on. Raises one that is pending."""
    set_handler(SIGINT, ignore_interrupt)


def interrupt_again(pid, call):
    if sources.calls == call:
        kill(pid, SIGINT)


def on_unraisable(unraisable):
    """Repeat an interrupt that came in a callback whose exceptions Python drops, for example one of
    the import system. A thread sends it, for this function is such a callback too. A
    KeyboardInterrupt that user code itself raises there looks the same and also ends the call.
    """
    if unraisable.exc_type is KeyboardInterrupt and getsignal(SIGINT) is default_int_handler:
        try:
            start_new_thread(interrupt_again, (getpid(), sources.calls))
            return
        except RuntimeError:
            pass  # no more threads are possible
    write_unraisable(unraisable)


# ---- Python -----------------------------------------------------------------------------------


class Source:
    """The text of one call as an entry of linecache: size, time, lines, name. The lines are made on
    first use, because few entries are ever used.
    """

    def __init__(self, name, text):
        self.name = name
        self.text = text
        self.entry = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.entry is None:
            self.entry = (len(self.text), None, self.lines(), self.name)
        return self.entry[index]

    def lines(self):
        lines = StringIO(self.text, newline=None).readlines()
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        return lines


class Sources:
    """Keeps the source lines of calls where traceback, inspect and pdb look for them."""

    def __init__(self):
        self.calls = 0
        self.preparations = 0
        self.kept = []
        self.size = 0

    def new_name(self, prepares):
        if prepares:
            self.preparations += 1
            return "<preparation %d>" % self.preparations
        self.calls += 1
        return "<call %d>" % self.calls

    def keep(self, name, text):
        self.put(name, Source(name, text))
        self.kept.append((name, len(text)))
        self.size += len(text)
        while self.size > SOURCES_MAX and len(self.kept) > 1:
            old, size = self.kept.pop(0)
            self.size -= size
            self.put(old, None)

    @staticmethod
    def put(name, source):
        try:
            linecache.cache[name] = source
            if source is None:
                del linecache.cache[name]
        except Exception:
            pass  # user code put something else in the cache's place: tracebacks have no lines


sources = Sources()


def common_start(one, other):
    size = 0
    while one[size : size + 1] == other[size : size + 1] != "":
        size += 1
    return one[:size]


def without_common_indentation(text):
    """Remove the indentation that all lines share; blank lines and comments do not count."""
    lines = text.splitlines(keepends=True)
    margin = None
    for line in lines:
        bare = line.lstrip(" \t")
        if not bare.strip() or bare.startswith("#"):
            continue
        indent = line[: len(line) - len(bare)]
        margin = indent if margin is None else common_start(margin, indent)
    if not margin:
        return text
    return "".join(line[len(margin) :] if line.startswith(margin) else line for line in lines)


def compile_source(source, name, split):
    """Return the code as a Program; with `split`, its last expression apart."""
    try:
        text = str(source, "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        text = None
    if text is None:  # for Python's own error
        return syntax.Program(compile(source, name, "exec", dont_inherit=True))
    sources.keep(name, text)
    try:
        return syntax.build_any(text, name, split)
    except SyntaxError as error:
        fault = error.with_traceback(None)
    bare = without_common_indentation(text)
    if bare != text:
        sources.keep(name, bare)
        try:
            return syntax.build_any(bare, name, split)
        except SyntaxError as error:
            fault = error.with_traceback(None)
    program = syntax.translate(bare, name, split)
    if program is None:
        raise fault
    return program


def run_for_results(source, name):
    """Run code and show the value of its last expression, and the figures that it leaves open."""
    bundles.begin()
    results.begin()
    program = compile_source(source, name, split=True)
    preloads.run_for(program.code, main.__dict__)
    try:
        results.show_value(program.run(main.__dict__))
    except Exception:
        results.show_figures()
        raise
    results.show_figures()
    results.end()


def run_python(source, wants_results, prepares):
    """Run Python code and return its exit code. Any exception is the user's."""
    try:
        interrupts_on()
        announce_start(0)
        name = sources.new_name(prepares)
        if wants_results:
            run_for_results(source, name)
        else:
            program = compile_source(source, name, split=False)
            preloads.run_for(program.code, main.__dict__)
            program.run(main.__dict__)
        if prepares:
            preloads.keep(source)
        signals.hold()
        interrupts_off()
        return 0
    except BaseException as error:
        while True:
            try:
                signals.hold()
                interrupts_off()
                break
            except BaseException:
                pass  # a pending one
        code = report_end(error)
        results.end()
        return code


def report_end(error):
    """Print an exception, unless it is an exit. Return the call's exit code."""
    try:
        return exit_code_of(error)
    except BaseException:  # the class of the exception is the user's, and has properties that raise
        streams.report("an exception that cannot be described\n")
        return 1


def exit_code_of(error):
    if not issubclass(type(error), SystemExit):
        print_exception(error)
        return 130 if issubclass(type(error), KeyboardInterrupt) else 1
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code if -(2**31) <= code < 2**31 else 255
    try:
        streams.report("%s\n" % (code,))
    except BaseException:
        pass  # its __str__ is the user's and may raise
    return 1


def is_ours(code):
    return code.co_filename in OUR_FILES


def print_exception(error):
    tb = error.__traceback__
    while tb and is_ours(tb.tb_frame.f_code):
        tb = tb.tb_next
    name = type(error).__name__
    if results.sender.takes():
        text, value = describe(error, tb)
        results.send_fault(name, value, text)
    try:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error.with_traceback(tb), tb)
            return
    except BaseException:
        pass  # the user's hook failed: print the exception here
    streams.report(describe(error, tb)[0])


def describe(error, tb):
    """Return an exception's traceback as text, and its value."""
    try:
        with standard_library:  # it imports more when it formats
            shown = describe_exception(type(error), error, tb, compact=True)
            hide_driver(shown, set())
            return "".join(shown.format()), str(shown)
    except BaseException:  # memory, recursion, a __str__ that raises, or modules that users changed
        return describe_plainly(error, tb)


def describe_plainly(error, tb):
    """Do the same without the standard library."""
    name, lines = type(error).__name__, ["Traceback (most recent call last):\n"]
    try:
        text = str(error)
    except BaseException:
        text = "<exception str() failed>"
    while tb and len(lines) < FRAMES_MAX:
        code = tb.tb_frame.f_code
        if not is_ours(code):
            lines.append('  File "%s", line %d, in %s\n' % (code.co_filename, tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    return "".join(lines) + "%s: %s\n" % (name, text), text


def hide_driver(shown, seen):
    """Remove the driver's frames from a traceback and from those it is chained to."""
    if shown is None or id(shown) in seen:
        return
    seen.add(id(shown))
    if shown.stack is not None:
        shown.stack[:] = [f for f in shown.stack if f.filename not in OUR_FILES]
        shown.stack = shown.stack or None
    for linked in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        hide_driver(linked, seen)


# ---- bash -------------------------------------------------------------------------------------


def start_bash(name, code, actions, *words, **options):
    """Start a bash that runs code of any length. Its $0 is `name`, or the first of `words`."""
    arguments = [name, "-c", code, *words]
    script = None
    if len(code) > ARGUMENT_MAX:
        script = script_file(code)
        actions.append((POSIX_SPAWN_DUP2, script, SCRIPT_FD))
        # bash reads the script, then closes the descriptor, then runs the script.
        arguments[2] = 'eval "$(</proc/self/fd/%d)" %d<&-' % (SCRIPT_FD, SCRIPT_FD)
    try:
        return posix_spawn(BASH, arguments, environment, file_actions=actions, **options)
    finally:
        if script is not None:
            close(script)


def script_file(code):
    script = memfd_create("bash")
    view = memoryview(code)
    while view:
        view = view[write(script, view) :]
    return script


def spawn_bash(code):
    actions = [
        (POSIX_SPAWN_OPEN, 0, "/dev/null", O_RDONLY, 0),
        (POSIX_SPAWN_DUP2, PIPE_OUT, 1),
        (POSIX_SPAWN_DUP2, PIPE_ERR, 2),
    ]
    return start_bash("bash", code, actions, setsid=True, setsigmask=[], setsigdef=ALL_SIGNALS)


def exit_code(status):
    return 128 + WTERMSIG(status) if WIFSIGNALED(status) else WEXITSTATUS(status)


def run_bash(code):
    """Run code in a new bash and return its exit code; its background children keep running."""
    if b"\0" in code:
        streams.report("bash: the code has a zero byte in it\n")
        return 2
    # A handler of the user's, or SIG_IGN, could take bash's exit code.
    old = set_handler(SIGCHLD, SIG_DFL)
    try:
        streams.flush()
        pid = spawn_bash(code)
        announce_start(pid)
        status = waitpid(pid, 0)[1]
    except OSError as error:
        streams.report("bash: %s\n" % error)
        return 126
    finally:
        set_handler(SIGCHLD, SIG_DFL if old is None else old)
    return exit_code(status)


def run_command(code, *words, keep=False):
    """Run a command of a Python call in a bash, and return its exit code. With `keep`, return its
    standard output too, which otherwise is the call's.
    """
    flush_for_child()
    actions = [(POSIX_SPAWN_OPEN, 0, "/dev/null", O_RDONLY, 0)]
    ends = pipe() if keep else ()
    out = b""
    try:
        try:
            if keep:
                actions.append((POSIX_SPAWN_DUP2, ends[1], 1))
            pid = start_bash(BASH, code, actions, *words, setsigdef=RESTORED_SIGNALS)
        finally:
            for end in ends[1:]:
                close(end)
        try:
            if keep:
                out = read_all(ends[0])
            return exit_code(waitpid(pid, 0)[1]), out
        except ChildProcessError:
            return 0, out  # the user's SIGCHLD handler has taken it
        except BaseException:
            end_command(pid)
            raise
    finally:
        for end in ends[:1]:
            close(end)


def read_all(fd):
    parts = []
    while True:
        part = read(fd, PAYLOAD_MAX)
        if not part:
            return b"".join(parts)
        parts.append(part)


def end_command(pid):
    """End a command whose call was interrupted. The interrupt reached it too."""
    try:
        for _ in range(25):
            if waitpid(pid, WNOHANG)[0]:
                return
            sleep(0.01)
        kill(pid, SIGKILL)
        waitpid(pid, 0)
    except OSError:
        pass  # it has ended


# ---- calls ------------------------------------------------------------------------------------


def reason(error):
    return getattr(error, "strerror", None) or error


def to_text(name):
    return name.decode("utf-8", "surrogateescape")


def move_up(fd):
    """Move a descriptor to where user code seldom closes it."""
    try:
        high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD)
    except OSError:
        return fd  # the user's limit is lower
    close(fd)
    return high


class CallContext:
    """The working directory and variables that a request sets for one call."""

    def __init__(self, request):
        self.request = request
        self.folder = None
        self.env = []

    def enter(self):
        """Apply them. Return an error message, or None."""
        for name, value in self.request.env:
            old = environment.get(name)
            try:
                putenv(name, value)
            except (OSError, ValueError) as error:  # a name with = in it
                return "set the variable %s: %s" % (to_text(name), reason(error))
            self.env.append((name, old))
            environment[name] = value
        try:
            if self.request.cwd:
                self.folder = move_up(open_file(".", O_PATH | O_DIRECTORY | O_CLOEXEC))
                chdir(self.request.cwd)
        except OSError as error:
            return "enter the folder %s: %s" % (to_text(self.request.cwd), reason(error))
        return None

    def leave(self):
        for name, value in reversed(self.env):
            if value is not None:
                putenv(name, value)
                environment[name] = value
            else:
                unsetenv(name)
                environment.pop(name, None)
        if self.folder is None:
            return
        try:
            fchdir(self.folder)
            close(self.folder)
        except OSError:
            pass  # the call closed all descriptors: it stays in its folder


def run_call(request, code):
    context = CallContext(request)
    error = context.enter()
    if error:
        streams.report("ramet: %s\n" % error)
        exit_code = 1
    elif request.language == PYTHON:
        exit_code = run_python(code, request.wants_results, request.prepares)
    else:
        exit_code = run_bash(code)
    if getpid() == driver_pid:
        context.leave()
    return exit_code


def serve_exec(payload):
    request = Request(payload)
    code = request.read_code()
    if code is None:
        send_frame(EXIT, EXITED.pack(1, 0))
        return
    exit_code = run_call(request, code)
    set_trace(None)
    set_profile(None)
    streams.flush()
    if getpid() != driver_pid:
        _exit(exit_code & 0xFF)  # a child of os.fork() that returned from the user's code
    end = EXITED.pack(exit_code, 0) + streams.take_last()
    send_frame(EXIT, end, before=bundles.take_last())
    signals.hold_handled()
    streams.repair()


def serve_reseed(users_too):
    """Seed the generators that sandboxes restored from one snapshot would share.

    OpenSSL's generator makes keys, so it is always seeded. The user's generators are part of the
    state that the snapshot is to preserve, so they are seeded on request only.
    """
    name = "OpenSSL"
    try:
        openssl = getattr(modules.get("_ssl"), "RAND_add", None)
        if openssl is not None:
            openssl(urandom(32), 32.0)
        for name in ("random", "numpy.random") if users_too else ():
            seed = getattr(modules.get(name), "seed", None)
            if seed is not None:  # a module of the user's may have this name, but no seed
                seed()
    except BaseException as error:
        text = ("seed %s: %s" % (name, reason(error))).encode("utf-8", "replace")[:200]
        send_frame(ERROR, FAILED.pack(5, len(text)) + text)  # EIO
    else:
        send_frame(DONE)


def start():
    for fd in (CTL, PIPE_OUT, PIPE_ERR, STARTS):
        set_inheritable(fd, False)
    close(PROGRESS)
    interrupts_off()
    sys.unraisablehook = on_unraisable
    main.__builtins__ = builtins
    modules["__main__"] = main
    sys.argv = [""]
    if sys.path[0] == FOLDER:  # not with PYTHONSAFEPATH
        sys.path[0] = ""  # the current directory, as at a prompt
    streams.out = streams.err = None
    sys.stdout = sys.stderr = None
    streams.repair()
    results.start(bundles.send, streams.flush_printed)
    syntax.start(main.__dict__, run_command)


def flush_for_child():
    """Let a child process's output follow what the call has printed and shown."""
    streams.flush_printed()
    wait_for_results()


def serve():
    start()
    # A template's memory is shared until written: keep the collector away from existing objects.
    gc.collect()
    gc.freeze()
    send_frame(PONG)
    while True:
        kind, payload = read_frame()
        if kind == EXEC:
            serve_exec(payload)
        elif kind == RESEED:
            serve_reseed(payload[0])


serve()
