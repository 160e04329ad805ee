"""A fleet folder is made from an example and the operator's values."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from bedplate.catalog import load_catalog
from bedplate.errors import BedplateError, InputError, error_lines
from bedplate.files import login_name, os_errors_as_machine_errors, write_together
from bedplate.folder.example import Answers, example_questions, example_regions, fill_example, read_example
from bedplate.folder.files import FLEET_FILE, check_empty, folder_files, git_output, link_environment
from bedplate.load import examine
from bedplate.operate import Operator, Result
from bedplate.rounds import ask_within
from bedplate.rules import Level

_KEY_FILES = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")
TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "name": "Name of the fleet, the prefix of all its resources, such as lab",
        "account": "AWS account id, such as 210987654321",
        "owner": "Email address of the owner, such as head@uni.edu",
        "domain": "Private DNS domain, such as lab.internal",
        "person": "Your user name, such as bob",
        "key": "Your SSH public key, or its file, such as ~/.ssh/id_ed25519.pub",
        "region": "AWS region, such as us-west-2",
        "gateway": "Public IPv4 address of the site's gateway, such as 9.9.9.9",
        "reservation": "Id of the capacity reservation, such as cr-0123456789abcdef1",
    }
)


def link(operator: Operator, folder: Path) -> None:
    """Prepare an existing fleet folder on this machine."""
    if not (folder / FLEET_FILE).is_file():
        raise InputError(
            f"there is no {FLEET_FILE}", where=str(folder), fix="name a folder made by `bedplate init DIR`"
        )
    operator.notify([f"linked {link_environment(folder)}"])


def make_folder(operator: Operator, folder: Path, example: str, values: Mapping[str, str | None]) -> Result:
    """Make a fleet folder of an example; values that are None come from this machine, or are asked for."""
    check_empty(folder)
    text = read_example(example)
    answers = _answers(operator, text, values, folder)
    fleet = fill_example(text, answers, load_catalog())
    _check(fleet)
    _write(folder, {FLEET_FILE: fleet.encode(), **folder_files(answers.name)})
    return Result(_next_lines(folder, answers))


def _answers(operator: Operator, text: str, options: Mapping[str, str | None], folder: Path) -> Answers:
    """Return the operator's values: from the options, else from this machine, else by a prompt."""
    questions = example_questions(text)
    # A rung with a reservation is optional in an example.
    if unused := [name for name, value in options.items() if value and name not in (*questions, "reservation")]:
        raise InputError(f"the example has no value for --{unused[0]}", fix=f"omit --{unused[0]}")
    values, missing = dict(options), []
    for question in questions:
        if values[question] is None:
            values[question] = _ask(operator, text, question, values, folder)
        if values[question] is None:
            missing.append(f"--{question}")
    if missing:
        raise InputError(f"missing values: {', '.join(missing)}", fix=f"add {' '.join(missing)}")
    values["key"] = _key_text(str(values["key"]))
    return Answers(**{name: value for name, value in values.items() if value is not None})


_ATTEMPTS = 3
# Valid values for what is not answered yet, while an answer is checked.
_OTHERS = {"account": "210987654321", "owner": "head@uni.edu", "gateway": "9.9.9.9", "person": "bob", "name": "lab"}
_OTHERS |= {"domain": "uni.internal", "key": f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}"}


def _ask(operator: Operator, text: str, question: str, values: Mapping[str, str | None], folder: Path) -> str | None:
    """Return a valid answer, or None without one. Raises InputError for an invalid one, on a terminal the third."""
    default = _default(operator, question, values, folder)
    if question == "region":
        default = default or example_regions(text)[0]
    for left in reversed(range(_ATTEMPTS)):
        answer = operator.ask(TEXTS[question], default)
        try:
            if answer:
                _check_answer(text, question, {**values, question: answer})
                return answer
        except InputError as error:
            if not (left and operator.is_attended):
                raise
            operator.notify(error_lines(error))
    return None


def _check_answer(text: str, question: str, values: Mapping[str, str | None]) -> None:
    """Raise InputError for the first error of one answer in the filled example."""
    known = {**_OTHERS, **{name: value for name, value in values.items() if value}}
    fields = (*example_questions(text), *(name for name in ("reservation",) if values[name]))
    answers = Answers(**{name: known[name] for name in fields if name in known} | {"key": _key_text(known["key"])})
    _check(fill_example(text, answers, load_catalog()), question)


def _default(operator: Operator, question: str, values: Mapping[str, str | None], folder: Path) -> str | None:
    key_files = (Path.home() / ".ssh" / name for name in _KEY_FILES)
    sources: Mapping[str, Callable[[], str | None]] = {
        "name": lambda: folder.resolve().name,
        "account": lambda: _account(operator),
        "region": _region,
        "owner": lambda: (git_output(Path(), "config", "user.email") or "").strip() or None,
        "domain": lambda: f"{values['name']}.internal",
        "person": lambda: None if login_name() == "root" else login_name().split("@")[0],
        "key": lambda: next((str(file) for file in key_files if file.is_file()), None),
    }
    return sources[question]() if question in sources else None


# Seconds. A provider of credentials may ask elsewhere, before STS.
_ANSWER = 20


def _account(operator: Operator) -> str | None:
    """Return the account of the AWS credentials, if this machine has any, and AWS answers in time."""
    # Slow: it imports boto3.
    from bedplate.account.client import caller_account, open_client

    operator.notify([f"asking AWS for the account of your credentials: at most {_ANSWER} s; --account ID avoids it"])
    ask = {"account": lambda: caller_account(open_client(), _region() or "us-east-1")}
    accounts, errors = ask_within(ask, _ANSWER)
    operator.notify(f"no account from AWS: {error.what}" for error in errors.values())
    return accounts.get("account")


def _region() -> str | None:
    from bedplate.account.client import open_session

    try:
        return open_session().region_name
    except BedplateError:
        return None


def _key_text(value: str) -> str:
    """Return the public key: the value itself, or the content of the file that it names."""
    if " " in value.strip():
        return value.strip()
    file = Path(value).expanduser()
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(
            "cannot read the public key", where=str(file), fix="name a file such as ~/.ssh/id_ed25519.pub"
        ) from None
    if "PRIVATE KEY" in text:
        raise InputError("the file has a private key", where=str(file), fix=f"name {file}.pub")
    return text


def _check(text: str, option: str = "") -> None:
    """Raise InputError with the first error in the filled example: one of the operator's values, or one, is invalid."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / FLEET_FILE
        file.write_text(text)
        faults = examine(file, load_catalog())
    errors = (fault for fault in faults if fault.level is Level.ERROR)
    if error := next((fault for fault in errors if _option_at(fault.key).startswith(option and f"--{option} ")), None):
        raise InputError(f"{error.code} {error.message}", where=_option_at(error.key), fix=error.fix)


def _option_at(key: str) -> str:
    """Return the option whose value the filled example has at a key, and the key: the operator sees no file."""
    parts = key.split(".")
    option = {"email": "owner", "public": "gateway"}.get(parts[-1], parts[-1])
    if parts[0] == "people":
        option = "key" if "keys" in parts else "person"
    return f"--{option} ({key})" if option in TEXTS else key


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    with os_errors_as_machine_errors(folder):
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
    write_together({folder / path: content for path, content in files.items()})
    link_environment(folder)


def _next_lines(folder: Path, answers: Answers) -> tuple[str, ...]:
    place = os.path.relpath(folder)
    enter = () if place == "." else (f"  cd {place}",)
    return (
        f"made the fleet {answers.name} in {place}: edit {FLEET_FILE}, commit the folder to git, then",
        *enter,
        "  bedplate check",
        "  bedplate rehearse",
        "  bedplate up",
    )
