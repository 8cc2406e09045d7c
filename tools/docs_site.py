"""What `make docs` adds to MkDocs: pages that lie outside of docs/, under their links.

In the repository, pages link to each other and to files and folders by relative paths. Here
README.md becomes the site's start, and every other file or folder outside of docs/ that a page
links to becomes a page below repository/: Markdown as it is, another file as a listing, a folder
as its README.md or, without one, as a list of what is in it. A link to what is not in the
repository stays as it is, and MkDocs reports it.
"""

import pathlib
import posixpath
import re
import subprocess
from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parent.parent
START = "README.md"
# The target of a link, without its anchor, and not the address of another site.
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")
NO_OPERATORS = """<!doctype html>
<title>Operators of torch-webgpu</title>
<p>This copy of the site was built without the tables of the operators. <code>make
conformance</code> writes them, and <code>make docs</code> after it publishes them here.</p>
"""


class Repository:
    """The files and folders that git knows or would add, by their paths from its root."""

    def __init__(self) -> None:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        output = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        self.files = {path for path in output.splitlines() if (ROOT / path).is_file()}
        parents = {pathlib.PurePosixPath(path).parent for path in self.files}
        self.folders = {str(up) for folder in parents for up in (folder, *folder.parents)} - {"."}

    def target(self, path: str, link: str) -> str | None:
        """What a link on a page leads to. A folder's README.md stands for the folder."""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        if target in self.folders and f"{target}/README.md" in self.files:
            return f"{target}/README.md"
        return target if target in self.files or target in self.folders else None

    def links(self, path: str) -> Iterator[str]:
        """What the page of a file or folder leads to."""
        if path in self.folders:
            yield from self.readmes(path)
        elif path.endswith(".md"):
            for link in LINK.findall((ROOT / path).read_text(encoding="utf-8")):
                if target := self.target(path, link):
                    yield target

    def readmes(self, folder: str) -> list[str]:
        inside = (file for file in self.files if file.startswith(f"{folder}/"))
        return sorted(file for file in inside if file.endswith("/README.md"))

    def listing(self, path: str) -> str:
        """The page of a file that is no Markdown, or of a folder without a README.md."""
        lines = ["---", "search: {exclude: true}", "---", f"# {path}", ""]
        if path in self.files:
            language = "python" if path.endswith(".py") else "text"
            text = (ROOT / path).read_text(encoding="utf-8")
            lines += [f"````{language}", text.rstrip("\n"), "````"]
        elif readmes := self.readmes(path):
            for name in (posixpath.relpath(file, path) for file in readmes):
                lines.append(f"- [{posixpath.dirname(name)}]({name})")
        else:
            inside = sorted(file for file in self.files if file.startswith(f"{path}/"))
            lines += [f"- `{posixpath.relpath(file, path)}`" for file in inside]
        return "\n".join(lines) + "\n"

    def uri(self, path: str) -> str:
        """The name under which MkDocs knows the page of a file or folder."""
        if path == START:
            return "index.md"
        if path.startswith("docs/"):
            return path.removeprefix("docs/")
        if path in self.folders:
            return f"repository/{path}/README.md"
        return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


class Site:
    """One build."""

    def __init__(self) -> None:
        self.repository = Repository()
        self.paths: dict[str, str] = {}

    def add_pages(self, files: Files, config: MkDocsConfig) -> None:
        queue = [START, *(file for file in self.repository.files if file.startswith("docs/"))]
        while queue:
            path = queue.pop()
            uri = self.repository.uri(path)
            if uri in self.paths:
                continue
            self.paths[uri] = path
            queue += self.repository.links(path)
            if path.startswith("docs/"):
                continue
            if path.endswith(".md"):
                file = File.generated(config, uri, abs_src_path=str(ROOT / path))
            else:
                content = self.repository.listing(path)
                file = File.generated(config, uri, content=content)
            files.append(file)

    def rewrite(self, markdown: str, source: str) -> str:
        """Lets the links of a page lead to pages."""
        path = self.paths[source]
        if not path.endswith(".md"):
            return markdown

        def replace(link: re.Match[str]) -> str:
            target = self.repository.target(path, link[1])
            if target is None:
                return link[1]
            return posixpath.relpath(self.repository.uri(target), posixpath.dirname(source) or ".")

        return LINK.sub(replace, markdown)


site: Site


def on_config(config: MkDocsConfig) -> None:
    # MkDocs refuses a folder in docs_dir as its setting, lest a site is copied into the next one.
    # `exclude_docs` sees to that.
    config.site_dir = str(ROOT / "docs" / "site")


def on_files(files: Files, config: MkDocsConfig) -> None:
    global site
    site = Site()
    site.add_pages(files, config)
    if files.get_file_from_path("ops.html") is None:
        files.append(File.generated(config, "ops.html", content=NO_OPERATORS))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return site.rewrite(markdown, page.file.src_uri)
