"""`make install`, as the author of a host in C meets it: through pkg-config alone.

The example gateway is built against the installed tree, shared and static, and tells its story.
The static library is linked beside a second SQLite, and both are used in one process.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CC = os.environ.get("CC", "cc")

# Two SQLites in one process: the library's, and one of the host's own on a database of its own.
TWO_SQLITES = r"""
#include <stdio.h>
#include <string.h>
#include <session_awareness.h>
#include "sqlite3.h"

#define EVENT "{\"sessionKey\":\"agent:main:main\",\"kind\":\"compacted\",\"actorType\":\"system\"}"

static int one(void *rows, int columns, char **values, char **names)
{
    (void)columns, (void)values, (void)names;
    ++*(int *)rows;
    return 0;
}

int main(int argc, char **argv)
{
    char config[4096], *reply;
    aware_t *aware;
    sqlite3 *own;
    int n, rows = 0;

    if (argc != 3) return 2;
    snprintf(config, sizeof config, "{\"database\":\"%s\"}", argv[1]);
    if (aware_open(config, &aware, NULL) != AWARE_OK) return 3;
    if (sqlite3_open(argv[2], &own) != SQLITE_OK) return 4;
    if (sqlite3_exec(own, "CREATE TABLE host(n)", NULL, NULL, NULL) != SQLITE_OK) return 5;
    for (n = 0; n < 100; n++) {
        if (aware_record(aware, EVENT, NULL) != AWARE_OK) return 6;
        if (sqlite3_exec(own, "INSERT INTO host VALUES (1)", NULL, NULL, NULL) != SQLITE_OK) return 7;
    }
    if (sqlite3_exec(own, "SELECT n FROM host", one, &rows, NULL) != SQLITE_OK || rows != 100) return 8;
    if (aware_stats(aware, "{}", &reply) != AWARE_OK || strstr(reply, "\"events\":100,") == NULL) return 9;
    aware_string_free(reply);
    printf("%s\n", sqlite3_sourceid());
    return aware_close(aware) != AWARE_OK || sqlite3_close(own) != SQLITE_OK;
}
"""


def run(*command, **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} answered {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def pkg_config(prefix, *words):
    path = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    return run("pkg-config", *words, env=path).split()


def sqlite_sources():
    """The amalgamation that the library itself is built with, taken as a host's own."""
    told = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked", cwd=ROOT))
    (package,) = (one for one in told["packages"] if one["name"] == "libsqlite3-sys")
    return Path(package["manifest_path"]).parent / "sqlite3"


def main(folder):
    prefix = folder / "prefix"
    run("make", "-C", ROOT, "--no-print-directory", "install", f"PREFIX={prefix}")
    gateway, data = folder / "gateway.c", folder / "data"
    shutil.copy(ROOT / "examples" / "gateway.c", gateway)
    shutil.copytree(ROOT / "examples" / "data", data)

    stories = []
    for package in ("session-awareness", "session-awareness-static"):
        program = folder / package
        flags = pkg_config(prefix, "--cflags", "--libs", package)
        run(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program, gateway, *flags)
        needs = "libsession_awareness.so.1" in run("readelf", "--dynamic", program)
        assert needs == (package == "session-awareness"), f"{package} is linked the other way"
        with_library = {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
        stories.append(run(program, env=with_library if needs else None))
    assert stories[0] == stories[1] and "All of it happened as told." in stories[0], stories

    version = pkg_config(prefix, "--modversion", "session-awareness")
    assert f'version = "{version[0]}"' in (ROOT / "Cargo.toml").read_text(), version
    visible = run("nm", "--extern-only", "--defined-only", prefix / "lib" / "libsession_awareness.a")
    names = {line.split()[-1] for line in visible.splitlines() if len(line.split()) == 3}
    header = (prefix / "include" / "session_awareness.h").read_text()
    assert names and all(name.startswith("aware_") and f"{name}(" in header for name in names), names

    sources, program = sqlite_sources(), folder / "two"
    (folder / "two.c").write_text(TWO_SQLITES)
    # Of another make than the library's: without threads, and with its own file locks.
    run(CC, "-c", "-O0", "-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION", "-o", folder / "own.o",
        sources / "sqlite3.c")  # fmt: skip
    flags = pkg_config(prefix, "--cflags", "--libs", "session-awareness-static")
    run(CC, "-std=c11", "-I", sources, "-o", program, folder / "two.c", folder / "own.o", *flags)
    run(program, folder / "aware.db", folder / "own.db")

    staged = folder / "staged"
    run("make", "-C", ROOT, "--no-print-directory", "install", "PREFIX=/usr", f"DESTDIR={staged}")
    found = (staged / "usr/lib/pkgconfig/session-awareness.pc").read_text()
    assert str(folder) not in found and "prefix=/usr\n" in found, found
    assert (staged / "usr/lib/libsession_awareness.so").exists()
    print("installed for C: shared, static, beside a second SQLite, staged")


if __name__ == "__main__":
    if shutil.which("pkg-config") is None:
        if os.environ.get("CI") == "true":
            sys.exit("left out: the installed tree for C: there is no pkg-config")
        print("left out: the installed tree for C: there is no pkg-config", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as fresh:
            main(Path(fresh))
