"""What a run's figures mean, found anew from them: words in result.json are signed by nobody."""

from collections.abc import Mapping
from typing import Any

from fedora_vfl.verdicts.auditing import audited
from fedora_vfl.verdicts.forgetting import verdict


def with_own_words(result: Mapping[str, Any], *, moved: float | None) -> dict[str, Any]:
    """Return a result whose verdicts follow from the figures of its models, whatever its file says that they are.

    Args:
        result: result.json.
        moved: How far the parameters moved, as the certificate has it; None where nobody says.
    """
    if "unlearned" not in result:
        return dict(result)
    measured = {
        name: one for name, one in result.items() if isinstance(one, dict) and {"test_accuracy", "bytes"} <= set(one)
    }
    rows = result["forget"]["rows"]
    uncertain = result["job"]["unlearn"].get("goal") == "uncertain"
    found: dict[str, Any] = {"verdict": verdict(measured, uncertain=uncertain, rows=rows, moved=moved)}
    if told := result.get("audit"):
        poisoned = measured["unlearned"].get("backdoor_asr") is not None
        found["audit"] = audited(measured, references=told["references"], rows=rows, poisoned=poisoned)
    return {**result, **found}
