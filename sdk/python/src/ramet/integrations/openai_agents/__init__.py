# SPDX-License-Identifier: Apache-2.0
"""OpenAI Agents SDK: Ramet as sandbox provider, branches of a run in forks, and plain tools.

`RametSandboxClient` goes into `SandboxRunConfig(client=...)`. `fork_session` and `run_branches`
fork a prepared session, `Branches` lets the model do it. `run_code_tool`, `shell_tool` and
`apply_patch_tool` are for agents without a sandbox provider.
"""

try:
    import agents as _agents
except ImportError as error:
    raise ImportError(
        "ramet.integrations.openai_agents needs the package openai-agents: "
        "pip install './sdk/python[openai]' in a checkout of Ramet"
    ) from error

from ramet.integrations.openai_agents.branches import (
    Branch,
    Branches,
    BranchRun,
    fork_session,
    merge_session,
    run_branches,
)
from ramet.integrations.openai_agents.client import RametSandboxClient
from ramet.integrations.openai_agents.options import (
    RametSandboxClientOptions,
    RametSandboxSessionState,
)
from ramet.integrations.openai_agents.session import RametSandboxSession, sandbox_of
from ramet.integrations.openai_agents.tools import (
    PythonCode,
    apply_patch_tool,
    run_code_tool,
    shell_tool,
)

__all__ = [
    "Branch",
    "BranchRun",
    "Branches",
    "PythonCode",
    "RametSandboxClient",
    "RametSandboxClientOptions",
    "RametSandboxSession",
    "RametSandboxSessionState",
    "apply_patch_tool",
    "fork_session",
    "merge_session",
    "run_branches",
    "run_code_tool",
    "sandbox_of",
    "shell_tool",
]
