"""Hooks of MkDocs (mkdocs.yml): the API reference, and pages for the files outside of docs/ that other pages link to.

On a repository page, `../examples/server.py` leads to the file. The site has no such file, so that it gets a page with its
text, and the link is rewritten. README.md is the first page. A name of `__all__` that the reference does not show is
an error.
"""

import ast
import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = "langchain_runjournal"
PARTS = ["errors", "events", "stores", "guard", "redact", "server", "view", "testing"]
MODULES = [PACKAGE, *(f"{PACKAGE}.{part}" for part in PARTS)]
LINK = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")(?![a-z]+:|#)([^)#\s\"]+)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.M | re.S)
LANGUAGES = {".py": "python", ".yml": "yaml", "Dockerfile": "docker", ".toml": "toml", "run": "bash"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the first page, the reference, and all that is linked to, directly or by an added page."""
    for module in MODULES:
        files.append(File.generated(config, _reference(module), content=_directives(module)))
    docs = [f"docs/{file.src_uri}" for file in files.documentation_pages() if file.generated_by is None]
    waiting, seen = ["README.md", *docs], set(docs)
    while waiting:
        path = waiting.pop()
        if (ROOT / path).is_dir():
            waiting += [one for one in _files(path) if one not in seen]
        if path.endswith(".md"):
            waiting += [one for one in _linked(path, _text(path)) if not one.startswith("docs/") and one not in seen]
        if path not in seen:
            files.append(File.generated(config, _place(path), content=_text(path)))
        seen.add(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the pages of the site; a page that was added has its links as in the repository."""
    place = page.file.src_uri
    if place.startswith("reference/"):
        return markdown
    own = "README.md" if place == "index.md" else place if page.file.generated_by else f"docs/{place}"
    own = own.removesuffix(".md") if not (ROOT / own).exists() else own

    def rewritten(link: re.Match[str]) -> str:
        target = _resolved(own, link[2])
        where = _place(target) if (ROOT / target).exists() else link[2]
        return link[1] + (posixpath.relpath(where, posixpath.dirname(place) or ".") if where != link[2] else where)

    parts = re.split(f"({CODE.pattern})", markdown, flags=re.M | re.S)
    return "".join(part if CODE.fullmatch(part) else LINK.sub(rewritten, part) for part in parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the references of docstrings as code, and `::` before an example as a colon."""
    return re.sub(r":(?:meth|class|func|mod|attr|data|exc):(?=<code>)|:(?=:</p>)", "", html)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a reference that lacks a public name."""
    absent = []
    for module in MODULES:
        html = Path(config.site_dir, _reference(module)).with_suffix(".html").read_text("utf-8")
        names = {f"{module}.{name}" for name in _public(module)} - set(MODULES)
        absent += sorted(name for name in names if f'id="{_source(name)}"' not in html)
    if absent:
        raise PluginError(f"The reference lacks {', '.join(absent)}.")


def _reference(module: str) -> str:
    return f"reference/{module.removeprefix(f'{PACKAGE}.')}.md"


def _directives(module: str) -> str:
    names = [f"{module}.{name}" for name in _public(module)]
    hidden = [_source(name) for name in names if _source(name) != name]
    return "\n\n".join([f"::: {module}", *(f"::: {name}\n    options: {{heading_level: 2}}" for name in hidden)])


def _source(name: str) -> str:
    """Return where the reference finds a name: a module that is named like the function in it hides the function."""
    is_hiding = name not in MODULES and (ROOT / f"{name.replace('.', '/')}.py").exists()
    return f"{name}.{name.rpartition('.')[2]}" if is_hiding else name


def _public(module: str) -> list[str]:
    """Return the names in `__all__`, from the source: the environment of the site does not have what the package imports."""
    path = ROOT / module.replace(".", "/")
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__":
                found += ast.literal_eval(node.value)
    if not found:
        raise PluginError(f"{module} has no __all__.")
    return found


def _linked(path: str, text: str) -> list[str]:
    links = [_resolved(path, link[2]) for link in LINK.finditer(CODE.sub("", text))]
    return [one for one in links if (ROOT / one).exists()]


def _resolved(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _place(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    # MkDocs leaves out what begins with a dot.
    path = "/".join(part.lstrip(".") for part in path.split("/"))
    return path if path.endswith(".md") else f"{path}.md"


def _files(path: str) -> list[str]:
    """Return the files of a directory of the repository."""
    return sorted(f"{path}/{one.name}" for one in (ROOT / path).iterdir() if one.is_file())


def _text(path: str) -> str:
    """Return a file of the repository as Markdown."""
    file = ROOT / path
    if file.is_dir():
        lines = [f"* [{posixpath.basename(one)}]({posixpath.relpath(one, posixpath.dirname(path))})" for one in _files(path)]
        return "\n".join([f"# {path}", "", *lines, ""])
    text = file.read_text("utf-8")
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])
    return f"# {path}\n\n````{LANGUAGES.get(file.suffix or file.name, 'text')}\n{text}````\n"


def _cell(cell: dict[str, object]) -> str:
    """Return a cell of a notebook, with the text that it printed."""
    source = "".join(cell["source"])  # type: ignore[arg-type]
    if cell["cell_type"] != "code":
        return source
    printed = ""
    for output in cell["outputs"]:  # type: ignore[attr-defined]
        found = output.get("text") or output.get("data", {}).get("text/plain", "")
        printed += "".join(found)
    return f"````python\n{source}\n````" + (f"\n\n````text\n{printed}\n````" if printed.strip() else "")
