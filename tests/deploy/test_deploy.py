"""What deploy/ ships is what the binary and its managers take: command lines, units, manifests, and the words of sd_notify."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'e2e'))
from conftest import BINARY, free_port  # noqa: E402

DEPLOY = ROOT / 'deploy'
VALUES = {'POD_NAME': 'pod-0', 'POD_IP': '10.1.2.3', 'SHOAL_JOIN': 'etcd://10.0.0.1:2379', 'SHOAL_MODELS': '/srv/models'}


def manifests():
    for path in sorted((DEPLOY / 'kustomize').glob('*.yaml')):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def takes(words, env=None):
    """Whether the binary takes this command line: it goes on to what it cannot find here, not to an error of usage."""
    done = subprocess.run([str(BINARY), *words, '--help'], capture_output=True, text=True, timeout=20, env={**os.environ, **(env or {})})
    assert done.returncode == 0, (words, done.stderr)
    known = set(re.findall(r'--[a-z][a-z-]*', done.stdout))
    for word in words:
        if word.startswith('--'):
            assert word.split('=')[0] in known, f'{word} is no flag of {words[0]}'


def test_command_lines_of_compose_are_the_binarys():
    services = yaml.safe_load((DEPLOY / 'compose' / 'compose.yaml').read_text())['services']
    own = {name: service['command'] for name, service in services.items() if name != 'etcd'}
    assert set(own) == {'controller', 'node-0', 'node-1', 'gateway'}
    for words in own.values():
        takes(words)


def test_command_lines_of_kubernetes_are_the_binarys():
    seen = set()
    for _, document in manifests():
        for container in document.get('spec', {}).get('template', {}).get('spec', {}).get('containers', []):
            words = [re.sub(r'\$\((\w+)\)', lambda m: VALUES[m[1]], word) for word in container['args']]
            takes(words, {'SHOAL_JOIN': VALUES['SHOAL_JOIN']})
            seen.add(words[0])
    assert seen == {'gateway', 'node', 'controller'}


def test_manifests_hold_the_schemas_of_kubernetes():
    validate = pytest.importorskip('kubernetes_validate')
    count = 0
    for name, document in manifests():
        if document['apiVersion'].startswith('kustomize.'):
            listed = set(document['resources'])
            assert listed == {p.name for p in (DEPLOY / 'kustomize').glob('*.yaml')} - {'kustomization.yaml'}
            continue
        validate.validate(document, '1.28', strict=True)
        count += 1
    assert count >= 8


def units():
    return sorted((DEPLOY / 'systemd').glob('*.service'))


def test_command_lines_of_units_are_the_binarys():
    variables = dict(line.split('=', 1) for line in (DEPLOY / 'systemd' / 'cluster.env').read_text().splitlines() if '=' in line and not line.startswith('#'))
    for unit in units():
        line = re.search(r'^ExecStart=/usr/bin/shoal (.*)$', unit.read_text(), re.M)[1]
        line = re.sub(r'\$\{?(\w+)\}?', lambda m: variables[m[1]], line).replace('%H', 'host').replace('%i', '0')
        takes(line.split())


@pytest.mark.skipif(shutil.which('systemd-analyze') is None, reason='systemd-analyze is not installed')
def test_units_are_well_formed_and_hardened(tmp_path):
    for unit in units():
        copy = tmp_path / unit.name.replace('@', '@0')
        copy.write_text(unit.read_text().replace('/usr/bin/shoal', str(BINARY)))
        verified = subprocess.run(['systemd-analyze', 'verify', '--man=no', str(copy)], capture_output=True, text=True)
        assert verified.returncode == 0 and unit.name not in verified.stderr, verified.stderr
        score = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--threshold=30', str(copy)], capture_output=True, text=True)
        assert score.returncode == 0, score.stdout[-500:] + score.stderr


def test_the_service_manager_hears_ready_watchdog_and_stopping(tmp_path):
    path = str(tmp_path / 'notify')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(30)
        process = subprocess.Popen([str(BINARY), 'controller', '--listen', f'unix:{tmp_path}/dir.sock', '--name', f'c{free_port()}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, 'NOTIFY_SOCKET': path, 'WATCHDOG_USEC': '200000'})
        try:
            heard = []
            while sum(b'WATCHDOG=1' in word for word in heard) < 3:
                heard.append(manager.recv(4096))
            assert any(b'READY=1' in word for word in heard)
            process.send_signal(signal.SIGTERM)
            while b'STOPPING=1' not in heard[-1]:
                heard.append(manager.recv(4096))
        finally:
            process.terminate()
            assert process.wait(20) == 0
