# SPDX-License-Identifier: Apache-2.0
"""The data folder of PostgreSQL that each run starts with."""

import subprocess
import tempfile
from pathlib import Path

SCALE = 5

# Few shared buffers and frequent checkpoints, so the disk is in use within seconds.
_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '/tmp'
shared_buffers = 24MB
max_wal_size = 48MB
checkpoint_timeout = 30s
wal_sync_method = fdatasync
autovacuum = off
log_checkpoints = off
"""


def programs() -> Path:
    """Return the folder with PostgreSQL's programs.

    :raises SystemExit: if it is not installed
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"),
                   key=lambda path: int(path.parts[-3]))
    if not found:
        raise SystemExit("bench-database: there is no /usr/lib/postgresql/*/bin/postgres: "
                         "run `make bench-database` as root")
    return found[-1].parent


def make(archive: Path) -> None:
    """Create the data folder of a database for pgbench, and write it to an archive."""
    with tempfile.TemporaryDirectory(prefix="vcache-database-") as folder:
        data = Path(folder) / "data"
        subprocess.run(["chown", "postgres:", folder], check=True)

        def run(name: str, *words: str) -> None:
            done = subprocess.run(["runuser", "-u", "postgres", "--", str(programs() / name),
                                   *words], cwd=folder, capture_output=True, text=True,
                                  check=False)
            if done.returncode:
                raise SystemExit(f"bench-database: {name} failed: {done.stderr.strip()}")

        run("initdb", "-D", str(data), "--no-locale", "-E", "UTF8", "-A", "trust")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS)
        server = ("-s", "-w", "-D", str(data), "-o", f"-k {folder}")
        run("pg_ctl", *server, "-l", f"{folder}/log", "start")
        try:
            run("createdb", "-h", folder, "bench")
            run("pgbench", "-h", folder, "-q", "-i", "-s", str(SCALE), "bench")
        finally:
            run("pg_ctl", *server, "-m", "fast", "stop")
        subprocess.run(["tar", "-C", folder, "-cf", str(archive), "data"], check=True)
