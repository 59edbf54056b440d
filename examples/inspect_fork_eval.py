# SPDX-License-Identifier: Apache-2.0
"""An Inspect AI eval whose samples are forks of one prepared sandbox, and whose solver forks again.

The sandbox is prepared once: a server reads its data into memory. Each sample of each epoch gets a
running clone of it. The model proposes three commands for each sample; the solver tries each of
them in a fork of the sample's sandbox, and the sample continues as the fork that succeeded. The
model is scripted, so the eval needs no key.
"""

from __future__ import annotations

import tempfile

import anyio
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from ramet.integrations.inspect_ai import RametSandboxConfig, RametSandboxEnvironment

# Serves readings from its memory, and counts its requests.
SERVER = """
import http.server, random
random.seed(1)
readings = [random.gauss(20, 5) for _ in range(100_000)]
answers = {'/max': f'{max(readings):.2f}', '/above-35': f'{sum(r > 35 for r in readings)}'}
requests = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global requests
        requests += 1
        found = self.path in answers or self.path == '/requests'
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(answers.get(self.path, str(requests)).encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(('127.0.0.1', 8123), Handler).serve_forever()
"""
SETUP = f"""
cat >/root/server.py <<'END'
{SERVER}
END
setsid python3 /root/server.py >/dev/null 2>&1 </dev/null &
until curl -sf localhost:8123/requests; do sleep 0.1; done
echo prepared >>/root/setup.log
"""

SAMPLES = [
    Sample(input="Write the highest reading to /root/answer.", target="40.90"),
    Sample(input="Write the number of readings above 35 to /root/answer.", target="128"),
]
PROPOSALS = {
    "highest": ["/highest", "/max", "/maximum"],
    "number": ["/above-35", "/number", "/count"],
}


def scripted(
    input: list[ChatMessage], tools: list[ToolInfo], choice: ToolChoice, config: GenerateConfig
) -> ModelOutput:
    """The scripted model: answers each task with its proposals, one in each line."""
    (paths,) = [paths for word, paths in PROPOSALS.items() if word in input[-1].text]
    commands = [f"curl -sf localhost:8123{path} >/root/answer" for path in paths]
    output = ModelOutput.from_content("mockllm/model", "\n".join(commands))
    output.usage = ModelUsage()  # otherwise Inspect downloads a tokenizer to count
    return output


@solver
def best_of_forks() -> Solver:
    """Tries each line of the model's answer in a fork, and continues as the first that succeeds."""

    async def succeeds(branch: RametSandboxEnvironment, command: str) -> bool:
        with branch.as_default():  # tools and agents would work in the branch too
            return (await sandbox().exec(["bash", "-c", command])).success

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        commands = (await generate(state)).output.completion.splitlines()
        own = sandbox().as_type(RametSandboxEnvironment)
        branches = await own.fork(len(commands))
        good: list[int] = []

        async def attempt(i: int) -> None:
            if await succeeds(branches[i], commands[i]):
                good.append(i)

        async with anyio.create_task_group() as tasks:
            for i in range(len(commands)):
                tasks.start_soon(attempt, i)
        if good:
            state.metadata["kept"] = commands[min(good)]
            await own.merge_into(branches[min(good)])
        return state

    return solve


@scorer(metrics=[accuracy()])
def answer_is_right() -> Scorer:
    """Compares the file in the sample's sandbox, and asks its server how often it was asked."""

    async def score(state: TaskState, target: Target) -> Score:
        answer = (await sandbox().read_file("/root/answer")).strip()
        requests = (await sandbox().exec(["curl", "-s", "localhost:8123/requests"])).stdout
        prepared = (await sandbox().read_file("/root/setup.log")).count("prepared")
        return Score(
            value=CORRECT if answer == target.text else INCORRECT,
            answer=answer,
            explanation=f"prepared {prepared} time, request {requests} to this server",
        )

    return score


def report(log: EvalLog) -> None:
    assert log.results, log.error and log.error.message
    for sample in sorted(log.samples or [], key=lambda one: (str(one.id), one.epoch)):
        for score in (sample.scores or {}).values():
            print(f"sample {sample.id}, epoch {sample.epoch}: {sample.metadata['kept']}")
            print(f"  {score.answer}: {score.value}; {score.explanation}")
    print(f"accuracy {log.results.scores[0].metrics['accuracy'].value:.2f}")


def main() -> None:
    task = Task(
        dataset=SAMPLES,
        solver=best_of_forks(),
        scorer=answer_is_right(),
        sandbox=SandboxEnvironmentSpec("ramet", RametSandboxConfig(setup=SETUP)),
        epochs=2,
    )
    model = get_model("mockllm/model", custom_outputs=scripted)
    with tempfile.TemporaryDirectory() as logs:
        report(eval(task, model=model, log_dir=logs, display="none")[0])


if __name__ == "__main__":
    main()
