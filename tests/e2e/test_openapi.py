"""/openapi.json is what the server does: requests made from it get no 5xx and no answer that it does not describe."""
import json
import os
import pathlib
import subprocess
import sys

from conftest import NAMES, Server, http

EXAMPLES = os.environ.get('SHOAL_OPENAPI_EXAMPLES', '30')  # per endpoint; a long run is a command away
CHECKS = ['not_a_server_error', 'status_code_conformance', 'content_type_conformance', 'response_headers_conformance',
          'response_schema_conformance', 'negative_data_rejection', 'unsupported_method']
# 501: what a surface knows and this server does not do (fetching models, gaps without a model for them) is said so.
CONFIG = """[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501]
"""


def described(server):
    """The description, narrowed to requests that get as far as a model."""
    document = http(server.url + '/openapi.json')[2]
    document['components']['schemas']['ModelName'] = {'enum': NAMES}
    return document


def test_every_answer_is_one_that_the_description_allows(tmp_path):
    server = Server('--max-model-len', '64')  # answers that end soon
    try:
        (tmp_path / 'openapi.json').write_text(json.dumps(described(server)))
        (tmp_path / 'schemathesis.toml').write_text(CONFIG)
        schemathesis = pathlib.Path(sys.executable).with_name('schemathesis')
        ran = subprocess.run([str(schemathesis), 'run', 'openapi.json', '--url', server.url, '--checks', ','.join(CHECKS), '--mode', 'all',
                              '--max-examples', EXAMPLES, '--seed', '1', '--generation-database', 'none', '--no-color',
                              '--phases', 'examples,coverage,fuzzing'],
                             cwd=tmp_path, capture_output=True, text=True, timeout=1800)
        assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2000:]
        assert server.process.poll() is None, server.output()
        print(ran.stdout[-1500:])
    finally:
        server.stop()
