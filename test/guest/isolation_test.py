# SPDX-License-Identifier: Apache-2.0
"""What user code changes or names does not reach the driver, and neither do the user's folders."""

import os
import sys
import textwrap
import unittest

from harness import CONTEXT_START, DONE, ERROR, FAULT, PYTHON, RESEED, AgentTest
from harness import ContextClient, struct, text


def block(code):
    return textwrap.dedent(code).lstrip("\n")


class Sabotage(AgentTest):
    """Evaluation harnesses replace functions of os and of other modules; the driver goes on."""

    NAMES = ("codecs", "fcntl", "gc", "io", "linecache", "os", "re", "select", "signal", "struct",
             "subprocess", "time", "traceback", "types")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        client = cls.agent.client()
        client.run(block(f"""
            import importlib, posix, sys
            kept = "state"
            for module in map(importlib.import_module, {cls.NAMES}):
                for name in [name for name in vars(module) if name[:2] != "__"]:
                    setattr(module, name, None)
            sys.settrace = sys.setprofile = sys.modules = None
        """))
        client.close()

    def tearDown(self):
        self.assert_ends(self.run_python("print(kept, posix.getcwd())"),
                         out=f"state {self.agent.home}\n")

    def test_folders_and_variables_of_calls(self):
        code = "print(posix.getcwd(), posix.system('echo $A'))"
        self.assert_ends(self.run_python(code, cwd="/", env=[("A", "b")]), out="b\n/ 0\n")
        self.assert_ends(self.run_bash("echo $PWD $A", cwd="/", env=[("A", "b")]), out="/ b\n")
        self.assert_ends(self.run_bash("echo $A"), out="\n")
        result = self.run_python("1", cwd="/no/such")
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("enter the folder /no/such: No such file", result.err)

    def test_tracebacks(self):
        result = self.run_rich("def f():\n    1/0\nf()")
        self.assertRegex(result.err, r'\ATraceback .*\n  File "<call \d+>", line 3, in <module>\n(.*\n)*'
                                     r'  File "<call \d+>", line 2, in f\n(.*\n)*'
                                     r"ZeroDivisionError: division by zero\n\Z")
        self.assertEqual([end for end, _ in result.bundles], [FAULT])

    def test_results_and_commands(self):
        result = self.run_rich("!echo a\nx = !echo b\n[x, 0.5]")
        self.assertEqual((result.out, result.bundles[0][1]["application/json"]), ("a\n", [["b"], 0.5]))
        self.assertEqual(self.run_rich("%%bash\necho $0").out, "/bin/bash\n")
        self.assert_ends(self.run_python("%cd /\n%cd"))

    def test_exits_reseeds_and_children(self):
        self.assert_ends(self.run_python("if not posix.fork(): print('child')\n"
                                         "else: posix.wait()"), out="child\n")
        self.assert_ends(self.run_python("raise SystemExit('text')"), 1, err="text\n")
        request = bytes(64) + struct.pack("<qB", 10**18, 1) + text("")
        self.assertEqual(self.client.ask(RESEED, request), (DONE, b""))

    def test_finders_of_modules(self):
        for change in ("= tuple(sys.meta_path)", "= None", "= 5"):
            self.assert_ends(self.run_python("import sys; sys.meta_path " + change))
            self.assert_ends(self.run_python("import sys; print(type(sys.meta_path))"),
                             out="<class 'list'>\n")
            self.assertEqual(self.run_rich("[0.5]").bundles[0][1]["application/json"], [0.5])
        self.assert_ends(self.run_python("del sys.meta_path"))
        self.assert_ends(self.run_python("import colorsys; print(colorsys.__name__)"), out="colorsys\n")

    def test_closed_descriptors(self):
        code = "[posix.close(fd) for fd in map(int, posix.listdir('/proc/self/fd'))"
        code += " if 2 < fd < 1000 and posix.access('/proc/self/fd/%d' % fd, 0)]"
        self.assert_ends(self.run_python(code, cwd="/"))

    def test_exceptions_whose_class_raises(self):
        result = self.run_python(block("""
            class Meta(type):
                __name__ = property(lambda self: 1 / 0)
            class Bad(Exception, metaclass=Meta):
                __traceback__ = property(lambda self: 1 / 0)
            raise Bad
        """))
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("an exception that cannot be described\n", result.err)


class Shadows(AgentTest):
    """Files in the user's folder that have the names of modules are not run."""

    def setUp(self):
        super().setUp()
        for name in sys.stdlib_module_names:
            if name not in sys.builtin_module_names:
                with open(os.path.join(self.agent.home, name + ".py"), "w") as file:
                    file.write(f"print('ran {name}')\n")
        self.run_python("import os; os._exit(0)")  # a new interpreter, after start
        self.client = self.connect()

    def assert_runs_nothing(self, code, out="", err=None):
        result = self.run_rich(block(code))
        self.assertNotIn("ran ", result.out + result.err, code)
        self.assertEqual(result.out, out, code)
        if err is None:
            self.assertEqual((result.err, result.code), ("", 0), code)
        else:
            self.assertRegex(result.err, err)
        return result

    def assert_works(self):
        result = self.assert_runs_nothing("[1, 'a']")
        self.assertEqual(result.bundles[0][1]["application/json"], [1, "a"])
        self.assert_runs_nothing("!echo a\nx = !echo b\nprint(x)", out="a\n['b']\n")
        self.assert_runs_nothing("%cd /\n%cd ~")
        self.assert_runs_nothing("%%bash\nexit 3", err=r"\n\S*CalledProcessError: .* exit status 3")
        self.assert_runs_nothing("async def f(): return 5\nprint(await f())", out="5\n")
        self.assert_runs_nothing("async def f(): 1/0\nawait f()", err="(?s)await f.*1/0.*ZeroDivision")
        self.assert_runs_nothing("x = [1]\nx[0] + x['\u00e9'] + 1", err=r"x\['\u00e9'\].*\n.*\^\^\^\^")
        self.assert_runs_nothing("prin(1)", err="NameError")
        self.assert_runs_nothing("x = = 1", err="SyntaxError")
        self.assert_runs_nothing("raise ExceptionGroup('g', [ValueError(1)])", err="ExceptionGroup: g")
        self.assert_runs_nothing("x = 5\nx is 5", err="SyntaxWarning")

    def test_nothing_runs_that_the_code_does_not_import(self):
        self.assert_works()

    def test_modules_that_the_code_has_imported_are_not_used(self):
        code = "import json, ast, asyncio, subprocess"
        self.assertEqual(self.run_python(code).out,
                         "".join(f"ran {n}\n" for n in ("json", "ast", "asyncio", "subprocess")))
        self.assert_works()
        self.assert_ends(self.run_python("import json\nprint(json.__file__)"),
                         out=os.path.join(self.agent.home, "json.py") + "\n")

    def test_user_code_imports_the_files(self):
        self.assert_works()
        self.assert_ends(self.run_python("import json"), out="ran json\n")


class Packages(AgentTest):
    """%pip: what it installs can be imported at once."""

    def test_packages_behind_new_path_files_are_found(self):
        major, minor = sys.version_info[:2]
        self.assert_ends(self.run_python("import sys, site\nprint(sys.version_info[:2], site.ENABLE_USER_SITE)"),
                         out=f"({major}, {minor}) True\n")
        site = os.path.join(self.agent.home, f".local/lib/python{major}.{minor}/site-packages")
        pip = os.path.join(self.agent.home, "pip")
        for at in (1, 2):
            with open(pip, "w") as file:
                file.write(block(f"""
                    #!/bin/bash
                    mkdir -p {site} ~/src{at} && echo 'print("found")' >~/src{at}/editable{at}.py
                    echo ~/src{at} >{site}/__editable__.at{at}.pth
                    echo 'import sys; sys.runs = getattr(sys, "runs", 0) + 1' >{site}/runs{at}.pth
                """))
            os.chmod(pip, 0o755)
            self.assert_ends(self.run_python(f"import sys\nold, sys.executable = sys.executable, '{pip}'\n"
                                             f"%pip install -e src{at}\nsys.executable = old\n"
                                             f"import editable{at}\nprint(sys.runs)"),
                             out=f"found\n{at}\n")


class Starts(AgentTest):
    """The driver's start sees none of the user's folders; the user's code does."""

    number = 0

    def begin(self, *env):
        Starts.number += 1
        one = "ctx_%032x" % Starts.number
        variables = b"".join(text(name) + text(value) for name, value in env)
        return one, self.client.ask(CONTEXT_START, text(one) + bytes([PYTHON]) + text("") +
                                    struct.pack("<I", len(env)) + variables)

    def open(self, *env):
        one, answer = self.begin(*env)
        self.assertEqual(answer, (DONE, b""))
        client = ContextClient(self.agent.path, one)
        self.addCleanup(client.close)
        return client

    def folder(self, **files):
        path = os.path.join(self.agent.home, f"folder{Starts.number}")
        os.makedirs(path)
        for name, content in files.items():
            with open(os.path.join(path, name + ".py"), "w") as file:
                file.write(content)
        return path

    def test_folders_of_the_users_python_path(self):
        names = [*sys.stdlib_module_names - set(sys.builtin_module_names), "ramet_results"]
        early = ("os", "site", "codecs", "io", "abc", "stat", "posixpath", "genericpath", "encodings",
                 "_collections_abc", "_sitebuiltins", "sitecustomize", "usercustomize")
        files = {name: f"print('ran {name}')" for name in names if name not in early}
        path = self.folder(**files)
        client = self.open(("PYTHONPATH", path))
        self.assert_ends(client.run("print(1)"), out="1\n")
        self.assert_ends(client.run("import sys; print(sys.path[:2])"), out=f"['', '{path}']\n")
        self.assert_ends(client.run("import json"), out="ran json\n")

    @unittest.skipIf(sys.version_info < (3, 11), "PYTHONSAFEPATH is of Python 3.11")
    def test_safe_path(self):
        client = self.open(("PYTHONSAFEPATH", "1"))
        self.assert_ends(client.run("import sys; print('' in sys.path, sys.path[0].endswith('.zip'))"),
                         out="False True\n")

    def test_what_python_printed_before_it_ended_is_in_the_error(self):
        path = self.folder(usercustomize="import sys\nprint('first', file=sys.stderr)\n"
                                         "sys.exit('no \\x1b[1mcustom at all')")
        _, (kind, payload) = self.begin(("PYTHONPATH", path))
        self.assertEqual(kind, ERROR)
        self.assertEqual(payload[8:].decode(), "Python did not start: the Python process ended with exit "
                                               "code 1: SystemExit: no [1mcustom at all")
        self.assert_ends(self.open().run("print(1)"), out="1\n")

    def test_an_interpreter_that_does_not_start_prints_nothing(self):
        path = self.folder(usercustomize="import os\nos._exit(3)")
        _, (kind, payload) = self.begin(("PYTHONPATH", path))
        self.assertTrue(payload.endswith(b"ended with exit code 3"), payload)


if __name__ == "__main__":
    unittest.main()
