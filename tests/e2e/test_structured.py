"""Answers within a grammar: json_schema, json_object, regular expressions, choices and GBNF, through the official client."""
import concurrent.futures
import json
import re

import openai
import pytest

from conftest import NAMES, http

USER = [{'role': 'user', 'content': 'Tell me about a person.'}]
PERSON = {
    'type': 'object',
    'properties': {
        'name': {'type': 'string', 'maxLength': 24},
        'age': {'type': 'integer', 'minimum': 0, 'maximum': 150},
        'tags': {'type': 'array', 'items': {'enum': ['a', 'b', 'c']}, 'maxItems': 3},
        'home': {'anyOf': [{'type': 'null'}, {'type': 'object', 'properties': {'zip': {'type': 'string', 'pattern': '^[0-9]{5}$'}},
                                              'required': ['zip'], 'additionalProperties': False}]},
    },
    'required': ['name', 'age', 'home'],
    'additionalProperties': False,
}


def schema_format(schema):
    return {'type': 'json_schema', 'json_schema': {'name': 'answer', 'strict': True, 'schema': schema}}


def assert_person(text):
    person = json.loads(text)
    assert list(person) == [k for k in PERSON['properties'] if k in person]
    assert {'name', 'age', 'home'} <= set(person)
    assert isinstance(person['name'], str) and len(person['name']) <= 24
    assert type(person['age']) is int and 0 <= person['age'] <= 150
    assert all(tag in ('a', 'b', 'c') for tag in person.get('tags', [])) and len(person.get('tags', [])) <= 3
    assert person['home'] is None or (list(person['home']) == ['zip'] and re.fullmatch('[0-9]{5}', person['home']['zip']))


@pytest.mark.parametrize('model', NAMES)
@pytest.mark.parametrize('temperature', [0, 1.5])
def test_answers_of_a_schema_parse_and_are_valid(client, model, temperature):
    for seed in range(8):
        answer = client.chat.completions.create(model=model, messages=USER, response_format=schema_format(PERSON), max_tokens=400,
                                                temperature=temperature, seed=seed)
        assert answer.choices[0].finish_reason == 'stop'
        assert_person(answer.choices[0].message.content)


@pytest.mark.parametrize('model', NAMES)
def test_any_json_object(client, model):
    for seed in range(6):
        answer = client.chat.completions.create(model=model, messages=USER, response_format={'type': 'json_object'}, max_tokens=600, seed=seed)
        if answer.choices[0].finish_reason == 'stop':
            assert isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.parametrize('extra,pattern', [
    ({'guided_regex': r'[A-Z]{2}-\d{3}'}, r'[A-Z]{2}-[0-9]{3}'),
    ({'guided_choice': ['positive', 'negative', 'neutral']}, 'positive|negative|neutral'),
    ({'structured_outputs': {'choice': ['é€', '🙂🙃', 'naïve']}}, 'é€|🙂🙃|naïve'),
    ({'guided_grammar': 'root ::= "<" [a-z]{1,4} ">" | "(" root ")"'}, r'\(*<[a-z]{1,4}>\)*'),
    ({'grammar': 'root ::= [0-9]{1,2} ("." [0-9])?'}, r'[0-9]{1,2}(\.[0-9])?'),
])
def test_expressions_choices_and_grammars(client, extra, pattern):
    for model in NAMES:
        for ignore_eos in (False, True):
            answer = client.completions.create(model=model, prompt='Answer:', max_tokens=200, temperature=1.2, seed=3, n=3,
                                               extra_body={**extra, 'ignore_eos': ignore_eos})
            for choice in answer.choices:
                if choice.finish_reason == 'stop':
                    assert re.fullmatch(pattern, choice.text), choice.text
            assert any(choice.finish_reason == 'stop' for choice in answer.choices) or ignore_eos


def test_a_stream_says_what_the_whole_answer_says(client):
    for model in NAMES:
        ask = dict(model=model, messages=USER, response_format=schema_format(PERSON), max_tokens=400, temperature=0.9, seed=11)
        whole = client.chat.completions.create(**ask).choices[0]
        chunks = [c for c in client.chat.completions.create(**ask, stream=True) if c.choices]
        assert ''.join(c.choices[0].delta.content or '' for c in chunks) == whole.message.content
        assert chunks[-1].choices[0].finish_reason == whole.finish_reason == 'stop'


def test_works_together_with_the_other_fields(client):
    answer = client.completions.create(model='tiny-llama', prompt='x', max_tokens=40, seed=5, n=4, temperature=1.3, logprobs=2, logit_bias={'65': 5},
                                       presence_penalty=0.5, extra_body={'guided_regex': '[a-z]{5,}( [a-z]{2,})*', 'min_tokens': 8})
    assert len({c.text for c in answer.choices}) > 1
    for choice in answer.choices:
        assert len(choice.logprobs.tokens) >= 8 or choice.finish_reason == 'stop'
        assert re.fullmatch('[a-z ]+', choice.text)
    stopped = client.completions.create(model='tiny-llama', prompt='x', max_tokens=60, seed=5, stop=[','],
                                        extra_body={'guided_regex': '[a-z]{3},[a-z]{3},[a-z]{3}'})
    assert re.fullmatch('[a-z]{3}', stopped.choices[0].text) and stopped.choices[0].finish_reason == 'stop'


@pytest.mark.parametrize('extra,code,param', [
    ({'response_format': schema_format({'type': 'object', 'properties': {'a': {'not': {}}}})}, 'invalid_schema', 'response_format.json_schema.schema'),
    ({'guided_json': {'type': 'array', 'uniqueItems': True}}, 'invalid_schema', 'guided_json'),
    ({'guided_json': {'$ref': '#'}}, 'invalid_schema', 'guided_json'),
    ({'guided_regex': '(?=x)'}, 'invalid_grammar', 'guided_regex'),
    ({'guided_choice': []}, 'invalid_value', 'guided_choice'),
    ({'grammar': 'root ::= root'}, 'invalid_grammar', 'grammar'),
    ({'grammar': 'root ::= "a"', 'guided_choice': ['a']}, 'invalid_value', 'grammar'),
    ({'grammar': 'root ::= ' + '("a" | "b"){90000} ' * 50}, 'invalid_grammar', 'grammar'),
    ({'guided_json': {'type': 'string', 'maxLength': 99999}}, 'invalid_schema', 'guided_json'),
    ({'guided_json': {'type': 'string', 'maxLength': 20000}}, None, None),
    ({'grammar': '(' * 100000}, 'invalid_grammar', 'grammar'),
    ({'guided_regex': '(' * 5000}, 'invalid_grammar', 'guided_regex'),
])
def test_what_cannot_be_followed_is_a_400_by_name(server, extra, code, param):
    for path, body in (('/v1/chat/completions', {'messages': USER}), ('/v1/completions', {'prompt': 'x'})):
        status, _, answer = http(server.url + path, {'model': 'tiny-llama', 'max_tokens': 4, **body, **extra})
        if code is None:
            assert status == 200, answer
        else:
            assert (status, answer['error']['code'], answer['error']['param']) == (400, code, param), answer


def test_a_crowd_changes_no_answer(client):
    def ask(i):
        form = [{}, {'response_format': schema_format(PERSON)}, {'guided_regex': '[a-z]{3,30}'}, {'response_format': {'type': 'json_object'}}][i % 4]
        answer = client.chat.completions.create(model=NAMES[i % 2], messages=[{'role': 'user', 'content': f'number {i}'}], max_tokens=60, seed=i,
                                                temperature=1, stream=True, extra_body=form)
        return ''.join(c.choices[0].delta.content or '' for c in answer if c.choices)

    alone = [ask(i) for i in range(32)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(32))) == alone


def test_a_grammar_that_runs_away_ends_in_an_error_and_the_server_goes_on(server, client):
    ambiguous = 'root ::= x+\nx ::= "a" y "b" | "a" z "c" | "a"\ny ::= "a" x | x x x\nz ::= x y | x x z | "a"'
    status, _, answer = http(server.url + '/v1/completions', {'model': 'tiny-llama', 'prompt': 'x', 'max_tokens': 1000, 'grammar': ambiguous})
    assert status in (200, 400), answer
    assert client.completions.create(model='tiny-llama', prompt='x', max_tokens=2).choices
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model='tiny-llama', prompt='x', max_tokens=2, extra_body={'grammar': 'root ::= <no-such-token>'})
