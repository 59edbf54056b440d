# SPDX-License-Identifier: Apache-2.0
"""Results of Python calls: values, figures, exceptions, and how they reach the host."""

import os
import re
import shutil
import time
import textwrap
import unittest

import harness
from harness import (BUNDLE, DROPPED, EXIT, FAULT, MAIN, RESULT, RICH, SHOWN,
                     AgentTest)


def block(code):
    return textwrap.dedent(code).lstrip("\n")


PNG = b"\x89PNG\r\n\x1a\n"
NOTE = "text/vnd.ramet.note"


def plain(text, end=MAIN):
    return end, {"text/plain": text}


class Values(AgentTest):
    """The value of the last expression, and display()."""

    def assert_results(self, code, *expected):
        result = self.run_rich(block(code))
        self.assertEqual((result.events, result.code), (list(expected), 0), code)

    def test_value_of_the_last_expression(self):
        for code, text in (("1 + 1", "2"), ("x = 5\nx", "5"), ("'a'", "'a'"), ("  3", "3"),
                           ("# comment\n4\n# end", "4"), ("if 1:\n  pass\n(\n5\n)", "5"),
                           ("x = 1; x + 1", "2")):
            self.assert_results(code, plain(text))

    def test_calls_without_a_value(self):
        for code in ("x = 1", "None", "1;", "x = 1; x;  ", "", "# nothing", "if 1:\n  5",
                     "def f(): pass", "import os"):
            self.assert_results(code)

    def test_nothing_is_left_in_the_namespace(self):
        self.run_rich("1 + 1")
        self.assert_results("[n for n in globals() if 'ramet' in n]",
                            (MAIN, {"text/plain": "[]", "application/json": []}))

    def test_tracebacks_are_those_of_plain_code(self):
        for code in ("x = 1\n1/0", "def f():\n  raise ValueError('no')\nf()", "1 +", "(lambda: 1/0)()"):
            rich, bare = self.run_rich(code), self.run_python(code)
            self.assertEqual((rich.code, bare.code), (1, 1))
            self.assertEqual(re.sub(r"<call \d+>", "", rich.err), re.sub(r"<call \d+>", "", bare.err))

    def test_warnings_of_the_compiler_come_once(self):
        result = self.run_rich("x = 5\nx is 5")
        self.assertEqual((result.err.count("SyntaxWarning"), result.code), (1, 0), result.err)

    def test_code_that_is_deeper_than_a_tree_can_be(self):
        code = "x = 5\nif x == 0: pass\n"
        code += "".join("elif x == %d: pass\n" % i for i in range(6, 1500))
        result = self.run_rich(code + "print('end')\nx")
        self.assertEqual((result.out, result.err, result.code), ("end\n", "", 0))

    def test_an_exception_comes_before_the_end(self):
        result = self.run_rich("print('a')\nraise KeyError('k')")
        (error,) = [entries for end, entries in result.bundles if end == FAULT]
        self.assertEqual((error["name"], error["value"]), ("KeyError", "'k'"))
        self.assertEqual(error["traceback"], result.err)
        self.assertEqual(result.events, ["a\n", (FAULT, error), result.err])
        for code in ("exit(3)", "import sys; sys.exit('text')"):
            self.assertEqual(self.run_rich(code).bundles, [])

    def test_an_exception_with_long_texts_is_shortened(self):
        result = self.run_rich("raise ValueError('\u20ac' * 1_000_000)")
        ((end, error),) = result.bundles
        self.assertEqual(end, FAULT)
        self.assertTrue(all(len(text.encode()) < 21 << 10 for text in error.values()))
        self.assertTrue(error["value"].startswith("\u20ac") and error["value"].endswith("\u20ac"))

    def test_exceptions_that_cannot_be_described(self):
        code = "class E(Exception):\n  def __str__(self): raise ValueError\nraise E"
        result = self.run_rich(code)
        ((end, error),) = result.bundles
        self.assertEqual((end, error["name"], result.code), (FAULT, "E", 1))

    def test_display(self):
        self.assert_results("print('a'); display(1, 'b'); print('c'); display({'x/y': 'z'}, raw=True)",
                            "a\n", plain("1", SHOWN), plain("'b'", SHOWN), "c\n",
                            (SHOWN, {"x/y": "z"}))

    def test_display_prints_if_the_client_takes_no_results(self):
        self.assert_ends(self.run_python("display(1, 'b')\n5"), out="1\n'b'\n")

    def test_representations(self):
        self.assert_results(
            """
            class All:
                def __repr__(self): return "plain"
                def _repr_html_(self): return "<b>"
                def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n", {"width": 5}
                def _repr_jpeg_(self): raise AssertionError("not asked for: it has a PNG")
                def _repr_latex_(self): return None
                def _repr_markdown_(self): raise NotImplementedError
                def _repr_json_(self): return {"a": [1, None, float("nan")]}
                def _repr_mimebundle_(self, include=None, exclude=None):
                    return {"x/y+json": {"b": 1}, "image/webp": "UklGRg=="}, {}
            All()
            """,
            (MAIN, {"text/plain": "plain", "x/y+json": {"b": 1}, "image/webp": b"RIFF",
                    "text/html": "<b>", "image/png": PNG,
                    "application/json": {"a": [1, None, None]}}))

    def test_classes_and_odd_objects_show_their_repr(self):
        self.assert_results("class C:\n  def _repr_html_(self): return 'x'\n"
                            "C.__module__ = 'm'\nC", plain("<class 'm.C'>"))
        self.assert_results("class Any:\n  def __getattr__(self, name): return lambda *a: name\n"
                            "  def __repr__(self): return 'any'\nAny()", plain("any"))

    def test_a_failing_representation_is_left_out(self):
        result = self.run_rich("class C:\n  def _repr_html_(self): 1/0\n  __repr__ = lambda s: 'c'\nC()")
        self.assertEqual(result.bundles, [plain("c")])
        self.assertIn("_repr_html_ of C raised ZeroDivisionError", result.err)

    def test_a_representation_of_a_wrong_type_is_left_out(self):
        result = self.run_rich("class C:\n  def _repr_html_(self): return {1}\n  def _repr_png_(self):"
                               " return 'x'\n  __repr__ = lambda s: 'c'\nC()")
        self.assertEqual((result.bundles, result.code), ([plain("c")], 0))
        self.assertIn("ramet: a result has no text/html: TypeError: ", result.err)
        self.assertIn("ramet: a result has no image/png: Error: ", result.err)

    def test_a_picture_is_checked_by_its_bytes(self):
        for method, data, mime in (("png", "b'GIF89a'", "image/png"), ("jpeg", "'R0lG'", "image/jpeg"),
                                   ("png", "bytearray(b'')", "image/png")):
            result = self.run_rich(f"class C:\n  def _repr_{method}_(self): return {data}\n"
                                   "  __repr__ = lambda s: 'c'\nC()")
            self.assertEqual((result.bundles, result.code), ([plain("c")], 0))
            self.assertEqual(result.err, f"ramet: a result has no {mime}: ValueError: its bytes are "
                                         "those of something else\n")

    def test_a_result_without_representations_is_none(self):
        self.assert_results("display({}, raw=True)\n3", plain("3"))
        result = self.run_rich("display({'text/html': {1}}, raw=True)")
        self.assertEqual((result.bundles, result.code), ([], 0))

    def test_a_repr_that_raises_fails_the_call(self):
        result = self.run_rich("class C:\n  def __repr__(self): 1/0\nC()")
        self.assertEqual([end for end, _ in result.bundles], [FAULT])
        self.assertEqual(result.code, 1)
        self.assertIn("in __repr__", result.err)

    def test_lists_and_dicts_are_json_too(self):
        self.assert_results("[1, 'a']", (MAIN, {"text/plain": "[1, 'a']", "application/json": [1, "a"]}))

    def test_json_has_the_values_as_they_are(self):
        for code, value in (("[0.1 + 0.2, 1e300, -0.0, 10**30]", [0.1 + 0.2, 1e300, -0.0, 10**30]),
                            ("[0.5, float('nan'), float('inf'), -float('inf')]",
                             [0.5, None, "Infinity", "-Infinity"]),
                            ("{1: 'a', 2.5: (1, [True, None]), None: {}, False: ''}",
                             {"1": "a", "2.5": [1, [True, None]], "null": {}, "false": ""}),
                            ("['\u20ac\\n\"\\\\\\0', '\\ud800']", ["\u20ac\n\"\\\0", "\\ud800"])):
            ((_, entries),) = self.run_rich(code).bundles
            self.assertEqual(entries.get("application/json"), value, code)
            self.assertNotIn(NOTE, entries)

    def test_what_has_no_json_says_why(self):
        for code, why in (("{1: 'a', '1': 'b'}", 'two keys of a dict are both "1" in JSON'),
                          ("[{None: 1, 'null': 2}]", 'two keys of a dict are both "null" in JSON'),
                          ("[{True: 1, 'true': 2}]", 'two keys of a dict are both "true" in JSON'),
                          ("{1: {2}}", "JSON has nothing for an object of the type set"),
                          ("{(1, 2): 3}", "JSON has no keys of the type tuple"),
                          ("a = []; a.append(a); a", "it is deeper than 200 lists and dicts"),
                          ("['x' * 1_100_000]", "its text is longer than 1 MiB")):
            ((_, entries),) = self.run_rich(code).bundles
            self.assertNotIn("application/json", entries, code)
            self.assertRegex(entries[NOTE], r"\Ano data: \w+Error: " + re.escape(why) + r"\Z")

    def test_too_large_a_result_is_replaced(self):
        result = self.run_rich("display('x' * 9_000_000)\n1")
        self.assertEqual(result.bundles[1], plain("1"))
        self.assertRegex(result.bundles[0][1]["text/plain"], r"8\.6 MiB was dropped.*8 MiB")

    NO_PACKAGES = "import sys\nsys.path = [p for p in sys.path if not p.endswith('-packages')]\n"

    def test_ipython_display_has_a_stand_in(self):
        self.assert_results(
            self.NO_PACKAGES +
            "from IPython.display import HTML, display, clear_output\ndisplay(HTML('<b>'))",
            (SHOWN, {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>"}))
        self.run_python("import os; os._exit(0)")

    def test_ipython_stays_missing_for_other_clients(self):
        code = self.NO_PACKAGES + "try:\n  import IPython\nexcept ImportError: print('missing')"
        self.assert_ends(self.run_python(code), out="missing\n")
        self.run_python("import os; os._exit(0)")

    def test_display_of_an_installed_ipython(self):
        core = os.path.join(self.agent.home, "IPython", "core")
        os.makedirs(core)
        for path, text in ((core + "/display_functions.py", "def display(*values, **o): print(*values)"),
                           (core + "/../display.py", "from .core.display_functions import display")):
            with open(path, "w") as file:
                file.write(text)
        code = "from IPython.display import display\ndisplay(1)"
        self.assert_results(code, plain("1", SHOWN))
        self.assertEqual(self.run_python(code).out, "1\n")
        shutil.rmtree(os.path.dirname(core))
        self.run_python("import os; os._exit(0)")

    def test_display_in_a_child_process_prints(self):
        code = "import os\nif not os.fork():\n  display('child'); os._exit(0)\nos.wait()\n'parent'"
        self.assert_results(code, "'child'\n", plain("'parent'"))

    def test_display_in_a_thread_after_the_call_is_dropped(self):
        self.run_rich("import threading\ngo, done = threading.Event(), threading.Event()\n"
                      "def f():\n  go.wait(); display(1); done.set()\nthreading.Thread(target=f).start()")
        self.assert_ends(self.run_python("go.set()\ndone.wait()\nprint('on')"), out="1\non\n")


class Syntax(AgentTest):
    """What is not Python: !cmd, magics, %%bash, await at the top level."""

    def assert_runs(self, code, out="", value=None):
        result = self.run_rich(block(code))
        self.assertEqual((result.out, result.err, result.code), (out, "", 0), code)
        self.assertEqual([b["text/plain"] for _, b in result.bundles], [value] if value else [])
        self.assert_ends(self.run_python(block(code)), out=out)

    def test_shell_commands(self):
        self.assert_runs("!echo a", "a\n")
        self.assert_runs("x = 'v'\n!echo {x} $x ${x}y $HOMEx '$HOME' {nope}", "v v y $HOME {nope}\n")
        self.assert_runs("if 1:\n    !echo in; echo two\nprint('after')", "in\ntwo\nafter\n")
        self.assert_runs("print('a')\n!echo 'it''s (odd' \"[\"\n!echo b\nprint('c')", "a\nits (odd [\nb\nc\n")
        self.assert_runs("!echo a \\\n  b\nprint(1)", "a b\n1\n")
        self.assert_runs("    !echo a\n    print(1)", "a\n1\n")
        self.assert_runs("!exit 3\n_exit_code", value="3")
        self.assert_runs("names = !printf 'a\\nb'\nnames", value="['a', 'b']")

    def test_strings_and_valid_code_stay(self):
        self.assert_runs("print('''\n!echo a\n%pip b''')\n!echo c", "\n!echo a\n%pip b\nc\n")
        self.assert_runs("a, b = 7, 4\nx = (a\n%b)\nx", value="3")
        self.assert_runs("a = 5 \\\n%3\na", value="2")

    def test_magics(self):
        self.assert_runs("%matplotlib inline\n%cd /\nimport os; print(os.getcwd())\n%cd", "/\n")
        result = self.run_rich("1\n%nope x")
        self.assertIn("the magic %nope does not exist here; there are %cd", result.err)
        self.assertIn('line 2, in <module>\n    %nope x\nNameError', result.err)

    def test_pip_is_that_of_the_interpreter(self):
        result = self.run_rich("import sys\nsys.executable = '/bin/echo'\nname = 'x'\n"
                               "%pip install {name} 'a  b'")
        self.assertEqual(result.out, "-P -m pip install x a  b\n")
        self.client.run("import os; os._exit(0)")

    def test_bash_cells(self):
        self.assert_runs("%%bash\necho a\necho $0", "a\n/bin/bash\n")
        result = self.run_rich("%%bash\nexit 3")
        self.assertEqual((result.code, result.bundles[0][1]["name"]), (1, "CalledProcessError"))

    def test_await(self):
        self.run_python("import asyncio\nasync def f(x): await asyncio.sleep(0); return x")
        self.assert_runs("await f(1)", value="1")
        self.assert_runs("async with asyncio.Lock(): print(await f(2))", "2\n")
        self.assert_runs("y = [await f(i) for i in range(2)]\n!echo {y}\ny", "[0, 1]\n", "[0, 1]")
        self.assert_runs("q = asyncio.Queue()\nawait q.put(1)")
        self.assert_runs("asyncio.run(f(3))", value="3")
        self.assert_runs("q.put_nowait(1) or await q.get()", value="1")
        result = self.run_rich("async def bad(): 1/0\nawait bad()")
        self.assertRegex(result.err, r'\A.*\n  File "<call \d+>", line 2, in <module>\n.*\n  File "<call')

    def test_an_await_changes_nothing_for_later_calls(self):
        self.run_python("import os; os._exit(0)")  # a new interpreter
        self.client = self.connect()
        get = "import asyncio, warnings\nwarnings.simplefilter('ignore')\nmine = asyncio.get_event_loop()"
        without = self.run_python(get + "\nmine.run_until_complete(asyncio.sleep(0))")
        self.run_python("import os; os._exit(0)")
        self.client = self.connect()
        self.assert_ends(self.run_python("import asyncio\nawait asyncio.sleep(0)"))
        after = self.run_python(get + "\nmine.run_until_complete(asyncio.sleep(0))")
        self.assertEqual((after.code, after.err), (without.code, without.err))
        self.run_python("asyncio.set_event_loop(mine)\nawait asyncio.sleep(0)")
        self.assert_ends(self.run_python("print(asyncio.get_event_loop() is mine)"), out="True\n")

    def test_scripts_of_any_length(self):
        long = "echo start" + " " * 200_000 + "end"
        self.assert_runs("%%bash\n" + long, "start end\n")
        self.assert_runs("!" + long, "start end\n")
        self.assert_runs("x = !" + long + "\nx", value="['start end']")

    def test_an_awaiting_call_can_be_interrupted(self):
        self.client.start("try:\n  print('ready')\n  await asyncio.sleep(60)\n"
                          "finally:\n  print('cleaned')".replace("asyncio", "__import__('asyncio')"))
        result = self.client.wait_for_output("ready\n")
        self.connect().interrupt()
        result = self.client.finish(result)
        self.assertEqual((result.out, result.code), ("ready\ncleaned\n", 130))
        self.assertIn("KeyboardInterrupt", result.err)
        self.assert_runs("await __import__('asyncio').sleep(0, 5)", value="5")

    def test_errors_are_pythons(self):
        for code, where in (("x = = 1", "line 1"), ("!echo a\nx = = 1", "line 2"),
                            ("await f(\n", "line 1"), ("return 1", "'return' outside function")):
            result = self.run_rich(code)
            self.assertEqual((result.code, result.bundles[0][1]["name"]), (1, "SyntaxError"))
            self.assertIn(where, result.err)


class Sending(AgentTest):
    """Results on their way to the host."""

    BIG = "class Big:\n  def __repr__(self): return 'big'\n" \
          "  def _repr_png_(self): return %r + bytes(range(256)) * {n}\n" % PNG

    def test_results_and_both_streams_keep_their_order(self):
        code = ("import sys\nfor i in range(200):\n"
                "  print('out', i); display(i); print('err', i, file=sys.stderr); display(-i)\n")
        expected = []
        for i in range(200):
            expected += [f"out {i}\n", plain(str(i), SHOWN), f"err {i}\n", plain(str(-i), SHOWN)]
        self.assertEqual(self.run_rich(code).events, expected)

    def test_output_of_commands_follows_results(self):
        self.assertEqual(self.run_rich("display(1)\n!echo a\ndisplay(2)\n!echo b").events,
                         [plain("1", SHOWN), "a\n", plain("2", SHOWN), "b\n"])

    def test_results_over_broken_connections(self):
        code = self.BIG.format(n=30_000) + "print('a'); display(Big()); print('b')\nBig()"
        self.client.start(code, call=21, flags=RICH)
        client, seen, have = self.client, harness.Result(), 0
        while True:
            kind, payload = client.recv()
            if kind == EXIT:
                break
            seen.parts.append((kind, payload))
            have += len(payload)
            if len(seen.parts) % 7 == 0:
                client.close()
                client = self.connect()
                client.attach(21, have)
        big = {"text/plain": "big", "image/png": PNG + bytes(range(256)) * 30_000}
        self.assertEqual(seen.events, ["a\n", (SHOWN, big), "b\n", (MAIN, big)])

    def test_a_result_waits_for_a_client(self):
        code = self.BIG.format(n=30_000) + "print('ready')\ndisplay(Big())\nprint('after')"
        self.client.start(code, call=22, flags=RICH)
        seen = self.client.wait_for_output("ready\n")
        self.client.close()
        client = self.connect()
        client.attach(22, len("ready\n"))
        seen = client.finish(seen)
        self.assertEqual(len(seen.bundles[0][1]["image/png"]), 8 + 256 * 30_000)
        self.assertEqual((seen.out, seen.code), ("ready\nafter\n", 0))

    def test_a_waiting_call_drops_back_pressure(self):
        code = self.BIG.format(n=30_000) + "print('ready')\ndisplay(Big())\nkept = 'all'"
        self.client.start(code, call=23, flags=RICH)
        self.client.wait_for_output("ready\n")
        self.client.close()
        self.assert_ends(self.connect().run("print(kept)"), out="all\n")

    def test_results_before_the_death_of_the_interpreter(self):
        # Without a client, the agent takes four of the six frames and holds the fifth; the rest fits
        # into the socket of the interpreter, which ends.
        code = self.BIG.format(n=1285) + "import os\ndisplay(Big())\ndisplay(2)\nos._exit(7)"
        pid = self.agent.driver_pid()
        self.client.start(code, call=24, flags=RICH)
        self.client.close()
        give_up = time.monotonic() + harness.TIMEOUT
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < give_up:
            time.sleep(0.01)
        client = self.connect()
        client.attach(24, 0)
        result = client.finish()
        self.assertEqual([len(b) for _, b in result.bundles], [2, 1])
        self.assertEqual((result.code, result.lost), (7, 1))

    def blocked_result(self, **options):
        """Starts a call whose result waits because this client does not read."""
        code = self.BIG.format(n=32_000) + "print('ready', flush=True)\ndisplay(Big())\n"
        self.client.start(code, flags=RICH, **options)
        return self.client.wait_for_output("ready\n")

    def test_a_call_that_waits_to_send_can_be_interrupted(self):
        seen = self.blocked_result()
        self.connect().interrupt()
        result = self.client.finish(seen)
        ends = [end for end, _ in result.bundles]
        # The interrupt came before, while or after the bundle was sent.
        self.assertIn(ends, ([FAULT], [DROPPED, FAULT], [SHOWN, FAULT], [SHOWN]))
        if FAULT in ends:
            self.assertEqual((result.code, result.bundles[-1][1]["name"]), (130, "KeyboardInterrupt"))
        self.assertEqual(self.client.run("'next'", flags=RICH).events, [plain("'next'")])

    def test_the_time_limit_applies_to_a_repr(self):
        code = "import time\nclass C:\n  def __repr__(self): time.sleep(60)\nC()"
        result = self.run_rich(code, timeout_ms=200)
        self.assertEqual((result.code, result.lost), (124, 0))
        self.assertEqual(result.bundles[0][1]["name"], "KeyboardInterrupt")

    HOSTILE = ("import os, struct\ndef send(kind, data):\n"
               "  os.write(1000, struct.pack('<IBBH', len(data), kind, 0, 0) + data)\n")

    def test_bytes_of_user_code_are_passed_on_as_they_are(self):
        result = self.run_rich(self.HOSTILE + "send(86, b'any'); send(86, b'thing'); send(84, b'\\1')")
        self.assertEqual(result.joined(BUNDLE), b"anything")
        self.assertEqual(result.parts[-1], (RESULT, b"\1"))

    def test_invalid_frames_end_the_interpreter(self):
        for frames in ("send(84, b'\\0')", "send(85, b'\\0')", "send(86, b'')",
                       "send(86, b'x'); send(84, b'\\3')", "send(86, b'x'); send(85, b'\\1')",
                       "send(86, b'x'); send(84, b'\\0\\0')", "send(87, b'')",
                       "[send(86, b'x' * 65536) for _ in range(129)]"):
            with self.subTest(frames):
                client = self.connect()
                result = client.run(self.HOSTILE + frames + "\nwhile 1: pass", flags=RICH)
                self.assertEqual((result.code, result.lost), (137, 1))

    def test_a_child_that_goes_on_sending_delays_nobody(self):
        result = self.run_rich(self.HOSTILE + block("""
            if not os.fork():
                frames = struct.pack('<IBBH', 1, 84, 0, 0) + b'\\2'
                while 1: os.write(1000, frames * 500)
            import time
            time.sleep(0.5)
            os._exit(7)
        """))
        self.assertEqual((result.code, result.lost), (7, 1))
        self.assertEqual(self.client.run("'next'", flags=RICH).events, [plain("'next'")])

    def test_a_hang_up_while_a_result_waits(self):
        code = self.BIG.format(n=32_000) + self.HOSTILE + block("""
            import threading
            print('ready', flush=True)
            threading.Timer(0.2, os.close, (1000,)).start()
            display(Big())
            threading.Event().wait()
        """)
        self.client.start(code, flags=RICH, timeout_ms=1500)
        seen = self.client.wait_for_output("ready\n")
        result = self.client.finish(seen)
        # 1: it was closed before all was sent.
        self.assertIn((result.code, result.lost), ((124, 1), (1, 1)))
        self.assertEqual(self.connect().run("print(1)").out, "1\n")


PANDAS = """
    class RangeIndex:
        name, start, step, nlevels = None, 0, 1, 1
        def __init__(self, size, start=0): self.size, self.start = size, start
        def tolist(self): return list(range(self.start, self.start + self.size))

    class Index:
        nlevels = 1
        def __init__(self, values, name=None): self.values, self.name = values, name
        def tolist(self): return self.values

    class Levels:
        def __init__(self, names, *levels):
            self.names, self.levels, self.nlevels = names, levels, len(levels)
        def get_level_values(self, at): return Index(self.levels[at])

    class Series:
        def __init__(self, values, name, index):
            self.values, self.name, self.index = values, name, index
        def tolist(self): return self.values
        def to_frame(self): return DataFrame([(self.name, self.values)], self.index)

    class DataFrame:
        def __init__(self, pairs, index=None):
            self.pairs = pairs
            self.columns = [name for name, _ in pairs]
            self.index = index or RangeIndex(len(self))
            self.size = len(self) * len(pairs)
        def __len__(self): return len(self.pairs[0][1])
        @property
        def iloc(self): return self
        def __getitem__(self, at): return Series(self.pairs[at[1]][1], None, self.index)
        def to_json(self, **options): raise TypeError("a subclass of the user's has its own")

    class NAType: pass
    NA = NAType()
"""
DATA = "application/vnd.ramet.data+json"


class Frames(AgentTest):
    """The data of pandas frames, on a stand-in with the same names. test/system has the real ones."""

    def setUp(self):
        super().setUp()
        os.makedirs(os.path.join(self.agent.home, "pandas"), exist_ok=True)
        with open(os.path.join(self.agent.home, "pandas", "__init__.py"), "w") as file:
            file.write(block(PANDAS))
        self.run_python("import pandas as pd, datetime, decimal")

    def entries_of(self, code):
        ((end, entries),) = self.run_rich(code).bundles
        self.assertEqual(end, MAIN, entries)
        return entries

    def assert_data(self, code, data, note=None):
        entries = self.entries_of(code)
        self.assertEqual((entries.get(DATA), entries.get(NOTE)), (data, note), code)

    def test_cells_are_the_values_of_the_frame(self):
        for cells, shown in (
            ("[0.1 + 0.2, 1/3, 3.2e-12]", [0.1 + 0.2, 1 / 3, 3.2e-12]),
            ("[float('nan'), float('inf'), 0.5]", [None, "Infinity", 0.5]),
            ("[1, 2**70, True, None]", [1, 2**70, True, None]),
            ("[10**1500, 10**5000]", [str(10**1500), hex(10**5000)]),
            ("[datetime.datetime(2026, 1, 1, 0, 0, 0, 123456), datetime.date(2026, 1, 2), pd.NA]",
             ["2026-01-01T00:00:00.123456", "2026-01-02", None]),
            ("[decimal.Decimal('1.10'), decimal.Decimal('NaN')]", ["1.10", None]),
            ("[b'text', b'\\xff', '\\ud800x']", ["text", "b'\\xff'", "\\ud800x"]),
            ("[[1, {'k': None}], {1}, {1: 2, '1': 3}]", [[1, {"k": None}], "{1}", "{1: 2, '1': 3}"]),
            ("(lambda a: a.append(a) or [a])([1])", ["[1, [...]]"]),
            ("[type('C', (), {'__str__': lambda s: 'text'})()]", ["text"]),
        ):
            self.assert_data(f"pd.DataFrame([('c', {cells})])", {"c": shown})

    def test_a_cell_that_cannot_be_text_shows_its_type(self):
        code = "pd.DataFrame([('c', [type('C', (), {'__str__': lambda s: 1 / 0})()])])"
        self.assertIn(".C object at 0x", self.entries_of(code)[DATA]["c"][0])

    def test_an_index_is_a_column_unless_it_is_row_numbers(self):
        for index, columns in (
            ("pd.RangeIndex(1)", {"a": [5]}),
            ("pd.RangeIndex(1, start=7)", {"index": [7], "a": [5]}),
            ("pd.Index(['x'])", {"index": ["x"], "a": [5]}),
            ("pd.Index(['x'], 'key')", {"key": ["x"], "a": [5]}),
            ("pd.Levels([None, 'k'], [1], [2])", {"level_0": [1], "k": [2], "a": [5]}),
        ):
            self.assert_data(f"pd.DataFrame([('a', [5])], {index})", columns)

    def test_columns_of_one_name_are_pairs(self):
        note = 'two columns are called "%s": the data is a list of names and columns'
        for code, name, pairs in (
            ("pd.DataFrame([('a', [1]), ('a', [2])])", "a", [["a", [1]], ["a", [2]]]),
            ("pd.DataFrame([(1, [1]), ('1', [2])])", "1", [[1, [1]], ["1", [2]]]),
            ("pd.DataFrame([('a', [1])], pd.Index([5], 'a'))", "a", [["a", [5]], ["a", [1]]]),
            ("pd.Series([1], 's', pd.Index(['x'], 's'))", "s", [["s", ["x"]], ["s", [1]]]),
            ("pd.DataFrame([(('a', 1), [1]), ('a 1', [2])])", "a 1", [["a 1", [1]], ["a 1", [2]]]),
        ):
            self.assert_data(code, pairs, note % name)

    def test_what_has_no_data_says_why(self):
        self.assert_data("pd.DataFrame([('a', [0] * 100_001)])", None,
                         "no data: ValueError: it has 100001 cells, the limit is 100000")
        self.assert_data("pd.DataFrame([(type('N', (), {'__str__': lambda s: 1 / 0})(), [1])])", None,
                         "no data: ZeroDivisionError: division by zero")


MATPLOTLIB = {
    "__init__.py": """
        class RcParams(dict): pass
        rcParams = RcParams(backend=object())
    """,
    "_pylab_helpers.py": """
        class Gcf:
            managers = []
            get_all_fig_managers = classmethod(lambda cls: list(cls.managers))
            destroy_all = classmethod(lambda cls: cls.managers.clear())
    """,
    "figure.py": """
        class Figure:
            dpi, lines, texts, images, _suptitle = 100, [], [], [], None
            def __init__(self, n): self.n, self.axes = n, [1] if n else []
            def get_facecolor(self): return "white"
            def __repr__(self): return "<figure %d>" % self.n
            def show(self): self.canvas.manager.show()
    """,
    "backends/__init__.py": "",
    "backends/backend_agg.py": """
        class FigureManagerBase:
            def __init__(self, canvas): self.canvas = canvas
            @classmethod
            def pyplot_show(cls, *, block=None): print("not interactive")
            def show(self): print("not interactive")
        class FigureCanvasAgg:
            manager_class = FigureManagerBase
            def __init__(self, figure):
                self.figure = figure
                figure.canvas = self
                self.manager = self.manager_class(self)
            def print_figure(self, file, **options): file.write(
                b"\\x89PNG\\r\\n\\x1a\\n%d" % self.figure.n)
    """,
    "pyplot.py": """
        import importlib
        import matplotlib
        from matplotlib._pylab_helpers import Gcf
        from matplotlib.figure import Figure
        def backend():
            name = dict.get(matplotlib.rcParams, "backend")
            if not isinstance(name, str):
                name = matplotlib.rcParams["backend"] = "module://matplotlib.backends.backend_agg"
            return importlib.import_module(name.removeprefix("module://"))
        def figure(n):
            canvas = getattr(backend(), "FigureCanvas", backend().FigureCanvasAgg if not
                             hasattr(backend(), "FigureCanvas") else None)(Figure(n))
            Gcf.managers.append(canvas.manager)
            return canvas.figure
        def show():
            module = backend()
            manager = getattr(module, "FigureManager", None) or module.FigureManagerBase
            manager.pyplot_show()
    """,
}


class Figures(AgentTest):
    """matplotlib's hooks, on a stand-in with the same names."""

    def setUp(self):
        super().setUp()
        for name, text in MATPLOTLIB.items():
            path = os.path.join(self.agent.home, "matplotlib", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(block(text))
        self.run_python("import os; os._exit(0)")  # a new interpreter for each test
        self.client = self.connect()

    def assert_figures(self, code, *expected):
        events = self.run_rich(block(code)).events
        found = [e[1]["image/png"].replace(PNG, b"PNG ")
                 if not isinstance(e, str) and "image/png" in e[1] else e
                 for e in events]
        self.assertEqual(found, list(expected), code)

    def test_show_shows_all_open_figures_at_once(self):
        self.assert_figures("import matplotlib.pyplot as plt\nplt.figure(1); plt.figure(2)\nplt.show()\n"
                            "print('after')", b"PNG 1", b"PNG 2", "after\n")
        self.assert_figures("plt.show()")

    def test_figures_left_open_are_shown_at_the_end_and_closed(self):
        self.assert_figures("import matplotlib.pyplot as plt\nf = plt.figure(1)\nprint('x')",
                            "x\n", b"PNG 1")
        self.assert_figures("f", b"PNG 1")
        self.assert_figures("None")

    def test_each_figure_is_shown_once(self):
        self.assert_figures("import matplotlib.pyplot as plt\nf = plt.figure(1)\nf", b"PNG 1")
        self.assert_figures("f = plt.figure(2)\ndisplay(f)\nprint(1)", b"PNG 2", "1\n")
        self.assert_figures("f = plt.figure(3)\nplt.show()\nNone", b"PNG 3")
        self.assert_figures("f = plt.figure(4)\nf.show()\nNone", b"PNG 4")

    def test_empty_figures_are_not_shown(self):
        self.assert_figures("import matplotlib.pyplot as plt\nf = plt.figure(0)\nNone")

    def test_figures_are_shown_before_an_exception(self):
        result = self.run_rich("import matplotlib.pyplot as plt\nf = plt.figure(1)\n1/0")
        self.assertEqual([end for end, _ in result.bundles], [SHOWN, FAULT])

    def test_clients_that_take_no_results_see_no_difference(self):
        code = "import matplotlib.pyplot as plt\nf = plt.figure(1)\nplt.show(); f.show()"
        self.assert_ends(self.run_python(code), out="not interactive\nnot interactive\n")
        # The figure is still open; a later call that takes results shows it.
        self.assert_figures("1", (MAIN, {"text/plain": "1"}), b"PNG 1")
        self.assert_ends(self.run_python("f = plt.figure(2); plt.show()"), out="not interactive\n")

    def test_our_backend_behaves_like_agg_for_other_clients(self):
        self.assert_figures("import matplotlib.pyplot as plt\nplt.figure(1)\nplt.show()", b"PNG 1")
        self.assert_ends(self.run_python("f = plt.figure(2); plt.show()"), out="not interactive\n")

    def test_a_backend_that_the_user_chose_stays(self):
        self.assert_figures("import matplotlib, os\n"
                            "matplotlib.rcParams['backend'] = 'module://matplotlib.backends.backend_agg'\n"
                            "import matplotlib.pyplot as plt\nf = plt.figure(1)\nplt.show()\nNone",
                            "not interactive\n", b"PNG 1")

    def test_nothing_is_imported_for_results(self):
        code = "import sys\nsorted({n.split('.')[0] for n in sys.modules} & {'json', 'asyncio', 'ast', " \
               "'subprocess', 'matplotlib', 'IPython', 'inspect', 'dis'})"
        self.assertEqual(self.run_rich(code).bundles[0][1]["text/plain"], "[]")


if __name__ == "__main__":
    unittest.main()
