"""shoal simulate and shoal plan, as a user runs them."""
import csv
import json
import signal
import subprocess
import time

from conftest import BINARY, ROOT

SMALL = ['--models', 6, '--request-rate', 1, '--duration', 20, '--output-len', 60]


def shoal(*args, code=0):
    result = subprocess.run([str(BINARY), *map(str, args)], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert result.returncode == code, result.stderr
    return result


def test_every_policy_gives_a_row_that_says_it_is_simulated():
    out = shoal('simulate', '--devices', '2xH800', *SMALL, '--policy', 'token,paper,request,static').stdout.splitlines()
    assert out[0].startswith('SIMULATED') and 'TTFT50' in out[0]
    assert [line.split()[1] for line in out[1:]] == ['token', 'paper', 'request', 'static']


def test_the_same_seed_gives_the_same_run_event_by_event():
    runs = [json.loads(shoal('simulate', '--devices', '2xH800', *SMALL, '--json', '--seed', seed).stdout)[0] for seed in (5, 5, 6)]
    assert runs[0]['simulated'] is True
    assert runs[0]['trace_hash'] == runs[1]['trace_hash'] != runs[2]['trace_hash']
    assert runs[0]['finished'] == runs[0]['requests'] > 0
    assert set(runs[0]['attainment']) == {'tokens', 'tokens_per_request', 'requests', 'artifact'}
    assert runs[0]['samples'][-1]['tokens'] <= runs[0]['tokens']


def test_a_trace_its_report_and_its_csv(tmp_path):
    trace = tmp_path / 'arrivals.csv'
    trace.write_text('Request Time,Model Name,Input Length,Output Length\n' + ''.join(f'00:00:{i:02d}.000,m{i % 3},{100 + i},{20 + i}\n' for i in range(30)))
    shoal('simulate', '--devices', '1xH800', '--trace', trace, '--report', tmp_path / 'run.html', '--csv', tmp_path / 'run.csv')
    page = (tmp_path / 'run.html').read_text()
    report = json.loads(page.split('id="report">')[1].split('</script>')[0])
    charts = [chart for block in report['blocks'] for chart in block.get('charts', [])]
    assert report['title'] == 'Simulated' and 'arrivals.csv, token: 3 models on 1xH800' in [block.get('heading') for block in report['blocks']]
    assert len(charts) == 3 and len({chart['x']['high'] for chart in charts}) == 1, 'times align from chart to chart'
    assert [series['name'] for series in charts[2]['series']] == ['model 0', 'model 1', 'model 2', 'loading weights']
    tiles = next(block['tiles'] for block in report['blocks'] if 'tiles' in block)
    assert tiles[0] == {'value': '100.0\u00a0%', 'name': 'of all tokens on time', 'bad': False, 'about': ''} and 'artifact' not in page
    assert 'http' not in page.replace('http://www.w3.org', '') and 'src=' not in page and 'href=' not in page
    rows = list(csv.DictReader((tmp_path / 'run.csv').open()))
    assert len(rows) == 30 and {row['how'] for row in rows} == {'length'}
    assert sorted(int(row['tokens']) for row in rows) == list(range(20, 50))


def test_ctrl_c_ends_a_run_with_the_figures_so_far(tmp_path):
    rows = tmp_path / 'run.csv'
    run = subprocess.Popen([str(BINARY), 'simulate', '--devices', '4xH800', '--request-rate', '2', '--duration', '1e7', '--csv', str(rows), '--json', '--no-progress'],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and (not rows.exists() or rows.stat().st_size < 10_000):
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and 'stopped after' in err
    done = json.loads(out)[0]
    assert done['interrupted'] and done['requests'] >= len(list(csv.DictReader(rows.open()))) > 10


def test_a_missing_folder_is_an_error_before_anything_is_simulated(tmp_path):
    path = tmp_path / 'gone' / 'run.html'
    for arguments in (['simulate', '--report'], ['simulate', '--csv'], ['simulate', '--replay', '/dev/null', '--fit'], ['plan', '--report']):
        result = shoal(*arguments, path, code=1)
        assert result.stdout == '' and f'{arguments[-1]} {path}: there is no folder {path.parent}' in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_plan_with_what_was_tried(tmp_path):
    flags = ['--kinds', 'H800,A100', '--models', '6', '--request-rate', '1', '--duration', '200000', '--output-len', '100', '--tensor-max', '1', '--devices-max', '256']
    run = subprocess.Popen([str(BINARY), 'plan', *flags, '--goal', '1', '--report', str(tmp_path / 'p.html')], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and 'stopped' in err
    lines = [line.split('|') for line in out.splitlines()[2:]]
    assert [line[0].strip() for line in lines if 'stopped before the fewest was found' in line[1]][-1] == 'A100' and 'H800' in out
    page = (tmp_path / 'p.html').read_text()
    assert 'Stopped before everything had been tried' in page and 'stopped before the fewest was found' in page


def test_mistakes_name_the_flag_and_what_is_known(tmp_path):
    assert "'H900' is no known device; known are A10" in shoal('simulate', '--devices', '2xH900', code=1).stderr
    assert '--policy lottery is none of token, paper' in shoal('simulate', '--policy', 'lottery', code=1).stderr
    assert 'no known model' in shoal('simulate', '--model-mix', 'gpt9', code=1).stderr
    assert 'does not fit A10' in shoal('simulate', '--devices', '1xA10', '--model-mix', 'llama2_13b_chat', code=1).stderr
    assert shoal('simulate', '--trace', '/none.csv', code=1).stderr == 'error: /none.csv: no such file\n'
    broken = tmp_path / 'broken.csv'
    broken.write_text('model,gpu\n')
    assert 'line 1' in shoal('simulate', '--profiles', broken, code=1).stderr


def test_a_plan_finds_the_fewest_devices_and_says_why_a_kind_cannot(tmp_path):
    flags = ['--devices-max', 4, '--tensor-max', 1, '--json', '--no-mix', '--report', tmp_path / 'p.html']
    rows = json.loads(shoal('plan', *SMALL, '--kinds', 'A10,H800,H100=2.00', *flags).stdout)
    kinds = {row['kind']: row for row in rows}
    assert 'does not fit A10' in kinds['A10']['why']
    assert {p['shape'] for p in kinds['H800']['probes']} > {'', '2 rooms'} or kinds['H800']['best']['devices'] == '1xH800'
    assert kinds['H800']['best']['met'] and kinds['H800']['best']['tokens_on_time'] >= 0.9
    assert kinds['H100']['best']['price_per_hour'] == 2.0 * int(kinds['H100']['best']['devices'].split('x')[0])
    page = (tmp_path / 'p.html').read_text()
    report = json.loads(page.split('id="report">')[1].split('</script>')[0])
    prices = next(block['charts'][0] for block in report['blocks'] if 'charts' in block)
    assert prices['title'].startswith('Price of the cheapest') and [len(series['points']) for series in prices['series']] == [1, 1, 2]
    assert prices['series'][0]['name'] == 'cheapest of all' and prices['series'][2]['points'][0][2].endswith('cheapest')
    assert report['lede'][0].startswith('6 models') and ['--goal', '0.9'] not in report['blocks'][-1]['table']['rows']
    table = shoal('plan', *SMALL, '--kinds', 'H800', '--tensor-max', 1, '--ttft', 0.001, '--tbt', 0.005, '--devices-max', 2, code=1).stdout
    assert 'not feasible: a prompt of' in table and 'relax --ttft' in table


def test_a_model_larger_than_a_device_is_planned_for_gangs():
    large = ['--models', 2, '--model-mix', 'qwen2_72b', '--request-rate', 0.2, '--duration', 30, '--output-len', 60, '--tbt', 0.2]
    assert 'does not fit H800' in shoal('simulate', *large, '--devices', '8xH800', code=1).stderr
    assert '6 devices make no whole gangs of 4' in shoal('simulate', *large, '--devices', '6xH800:tp4', code=1).stderr
    run = json.loads(shoal('simulate', *large, '--devices', '8xH800:tp4', '--json').stdout)[0]
    assert run['finished'] == run['requests'] > 0
    row = json.loads(shoal('plan', *large, '--kinds', 'H800', '--devices-max', 16, '--json').stdout)[0]
    assert row['feasible'] and ':tp' in row['best']['devices'] and row['best']['tokens_on_time'] >= 0.9
    assert 'does not fit H800' in shoal('plan', *large, '--kinds', 'H800', '--tensor-max', 1, code=1).stdout
