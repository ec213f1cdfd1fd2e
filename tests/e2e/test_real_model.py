"""A real model, SmolLM2-135M-Instruct: what small trained ones are too small to show. Skipped where it could not be fetched."""
import concurrent.futures
import json
import os
import pathlib

import pytest

from conftest import ROOT, Server

NAME = 'SmolLM2-135M-Instruct'
FILE = pathlib.Path(os.environ.get('SHOAL_REAL_MODEL', ROOT / 'build' / 'models' / f'{NAME}.gguf'))
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f'{FILE.name} is not there: tools/fetch_model.py fetches it')

QUESTIONS = ['What is the capital of France, and what is it known for?', 'Name three colours.', 'Why is the sky blue?', 'Write a line about the sea.']
WEATHER = {'type': 'function', 'function': {'name': 'get_weather', 'description': 'The weather in a city', 'parameters': {
    'type': 'object', 'properties': {'city': {'type': 'string'}, 'unit': {'enum': ['celsius', 'fahrenheit']}}, 'required': ['city', 'unit'],
    'additionalProperties': False}}}


@pytest.fixture(scope='module')
def real():
    running = Server('--alias', 'real', models=FILE)
    yield running
    running.stop()


def ask(server, question, tokens=32, temperature=0, **more):
    return server.client().chat.completions.create(model='real', temperature=temperature, max_tokens=tokens,
                                                   messages=[{'role': 'user', 'content': question}], **more)


def text(server, question, **more):
    return ask(server, question, **more).choices[0].message.content


@pytest.fixture(scope='module')
def alone(real):
    return {question: text(real, question) for question in QUESTIONS}


def test_it_knows_the_capital_of_france(alone):
    assert 'Paris' in alone[QUESTIONS[0]]


def crowd(server, streams, **more):
    def stream(i):
        chunks = ask(server, QUESTIONS[i % len(QUESTIONS)], stream=True, **more)
        return ''.join(chunk.choices[0].delta.content or '' for chunk in chunks if chunk.choices)
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        return list(pool.map(stream, range(streams)))


def test_thirty_two_streams_say_what_each_says_alone(real, alone):
    assert crowd(real, 32) == [alone[QUESTIONS[i % len(QUESTIONS)]] for i in range(32)]


def test_answers_survive_preemption(alone):
    # Workspace of 66 MiB, weights of 156 MiB and KV of 22.5 KiB a token in f16: room for some of 32 conversations.
    server = Server('--alias', 'real', '--device-memory', '236MiB', '--host-memory', '0', '--max-model-len', '512', models=FILE)
    try:
        assert crowd(server, 32) == [alone[QUESTIONS[i % len(QUESTIONS)]] for i in range(32)]
        assert server.metric('vllm:num_preemptions_total') > 0
        before = server.metric('vllm:num_preemptions_total')
        remembers = {'temperature': 1, 'seed': 5, 'extra_body': {'mirostat': 2, 'mirostat_tau': 4, 'dry_multiplier': 0.8}}
        lone = [text(server, question, **remembers) for question in QUESTIONS]
        assert crowd(server, 32, **remembers) == [lone[i % len(QUESTIONS)] for i in range(32)]
        assert server.metric('vllm:num_preemptions_total') > before
    finally:
        server.stop()


@pytest.mark.parametrize('dtype', ['q8_0', 'f32'])
def test_other_kinds_of_kv_change_little(alone, dtype):
    server = Server('--alias', 'real', '--kv-cache-dtype', dtype, models=FILE)
    try:
        assert 'Paris' in text(server, QUESTIONS[0])
    finally:
        server.stop()


def test_a_call_that_is_asked_for_is_made(real):
    message = ask(real, 'How warm is it in Oslo, in celsius?', tokens=80, tools=[WEATHER], tool_choice='required').choices[0].message
    (call,) = message.tool_calls[:1]
    arguments = json.loads(call.function.arguments)
    assert call.function.name == 'get_weather' and set(arguments) == {'city', 'unit'}


def test_an_answer_follows_its_schema(real):
    schema = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 30}, 'population': {'type': 'integer'}, 'capital': {'type': 'boolean'}},
              'required': ['name', 'population', 'capital'], 'additionalProperties': False}
    answer = text(real, 'Describe Paris as JSON.', tokens=100, response_format={'type': 'json_schema', 'json_schema': {'name': 'city', 'schema': schema}})
    city = json.loads(answer)
    assert set(city) == {'name', 'population', 'capital'} and isinstance(city['population'], int)
