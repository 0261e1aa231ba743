# SPDX-License-Identifier: Apache-2.0
"""A private MariaDB, with its own port and files and without a service manager.

SQLite is not sufficient for a scheduler and a conductor: concurrent writes fail with
"locked", and an instance stays in BUILD.
"""

from pathlib import Path

import pymysql

from tests.box import inside
from tests.box.steps import on_error
from tests.cloud.processes import Process, free_port, wait_for

_PASSWORD = "secret"  # noqa: S105


class Database:
    """A server on loopback, with databases in a temporary folder.

    :param folder: folder for all of its files
    :param names: names of the databases
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        folder.mkdir()
        self._port = free_port()
        data = folder / "data"
        inside.run("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
                   "--auth-root-authentication-method=normal", "--skip-test-db")
        # Read at each start, before clients can connect.
        first = folder / "first.sql"
        first.write_text("".join(f"CREATE DATABASE IF NOT EXISTS {name};\n" for name in names)
                         + f"CREATE USER IF NOT EXISTS os@'127.0.0.1' IDENTIFIED BY '{_PASSWORD}';"
                           "\nGRANT ALL ON *.* TO os@'127.0.0.1';\n")
        # Temporary data need not survive a power cut.
        self.process = Process(folder, "mariadb", [
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}",
            f"--socket={folder}/socket" if len(str(folder)) < 90 else "--socket=",
            f"--pid-file={folder}/pid", "--bind-address=127.0.0.1", f"--port={self._port}",
            f"--init-file={first}", "--innodb-buffer-pool-size=64M", "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0",
            "--max-connections=400", "--skip-name-resolve"])
        with on_error(self.close):
            wait_for(self._answers, "MariaDB", 60)

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return (f"mysql+pymysql://os:{_PASSWORD}@127.0.0.1:{self._port}/"
                f"{name.replace('-', '_')}?charset=utf8mb3")

    def close(self) -> None:
        """Stop it."""
        self.process.stop(60)

    def _answers(self) -> bool:
        assert self.process.runs, f"MariaDB ended, see {self.process.log}"
        try:
            pymysql.connect(host="127.0.0.1", port=self._port, user="os",
                            password=_PASSWORD).close()
        except pymysql.Error:
            return False
        return True
