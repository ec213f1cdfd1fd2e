"""Tools and reasoning as users of the openai package see them, on models whose template knows no tools."""
import json

import openai
import pytest

from conftest import NAMES, http

WEATHER = {'type': 'function', 'function': {'name': 'get_weather', 'description': 'Current weather of a city.', 'parameters': {
    'type': 'object', 'properties': {'city': {'type': 'string', 'maxLength': 12}, 'unit': {'type': 'string', 'enum': ['C', 'F']},
                                     'days': {'type': 'integer', 'minimum': 1, 'maximum': 9}},
    'required': ['city', 'unit', 'days'], 'additionalProperties': False}}}
NOW = {'type': 'function', 'function': {'name': 'now', 'parameters': {'type': 'object', 'properties': {}, 'additionalProperties': False}}}
QUESTION = [{'role': 'user', 'content': 'What is the weather in Bern?'}]


def check(call):
    assert call.type == 'function' and call.id.startswith('call_')
    arguments = json.loads(call.function.arguments)
    if call.function.name == 'now':
        assert arguments == {}
        return
    assert call.function.name == 'get_weather'
    assert set(arguments) == {'city', 'unit', 'days'}
    assert isinstance(arguments['city'], str) and len(arguments['city']) <= 12
    assert arguments['unit'] in ('C', 'F') and arguments['days'] in range(1, 10)


@pytest.mark.parametrize('model', NAMES)
@pytest.mark.parametrize('seed', range(6))
def test_required_calls_are_valid_whatever_the_model_would_rather_say(client, model, seed):
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=[WEATHER, NOW], tool_choice='required',
                                            parallel_tool_calls=False, seed=seed, temperature=1, max_tokens=300)
    choice = answer.choices[0]
    assert choice.finish_reason == 'tool_calls'
    assert choice.message.content is None
    assert len(choice.message.tool_calls) == 1
    check(choice.message.tool_calls[0])


@pytest.mark.parametrize('model', NAMES)
def test_a_named_function_is_the_one_that_is_called(client, model):
    for name in ('get_weather', 'now'):
        answer = client.chat.completions.create(model=model, messages=QUESTION, tools=[WEATHER, NOW], max_tokens=300,
                                                tool_choice={'type': 'function', 'function': {'name': name}}, seed=1)
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name == name
        check(call)


def collected(stream):
    """-> content, [[name, arguments]], finish_reason; holds the stream to OpenAI's rules."""
    content, calls, finish, first = '', [], None, True
    for chunk in stream:
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        if first:
            assert choice.delta.role == 'assistant'
        first = False
        content += choice.delta.content or ''
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            if call.id:
                assert call.index == len(calls) and call.type == 'function' and call.function.arguments == ''
                calls.append([call.function.name, ''])
            else:
                assert call.function.name is None and call.type is None
                calls[call.index][1] += call.function.arguments
    return content, calls, finish


@pytest.mark.parametrize('model', NAMES)
@pytest.mark.parametrize('choice', ['required', 'auto'])
def test_a_stream_says_what_the_whole_answer_says(client, model, choice):
    for seed in range(3):
        options = dict(model=model, messages=QUESTION, tools=[WEATHER, NOW], tool_choice=choice, seed=seed, temperature=1,
                       max_tokens=120)
        whole = client.chat.completions.create(**options).choices[0]
        content, calls, finish = collected(client.chat.completions.create(**options, stream=True))
        assert content == (whole.message.content or '')
        assert calls == [[c.function.name, c.function.arguments] for c in whole.message.tool_calls or []]
        assert finish == whole.finish_reason


def test_auto_answers_in_words_where_the_model_calls_nothing(client):
    answer = client.chat.completions.create(model='tiny-llama', messages=[{'role': 'user', 'content': 'What is 2 + 3?'}],
                                            tools=[WEATHER], temperature=0, max_tokens=40)
    assert answer.choices[0].finish_reason in ('stop', 'tool_calls', 'length')
    assert answer.choices[0].message.content or answer.choices[0].message.tool_calls


def test_results_of_calls_go_back_into_the_conversation(server, client):
    first = client.chat.completions.create(model='tiny-llama', messages=QUESTION, tools=[NOW], tool_choice='required', max_tokens=100)
    message = first.choices[0].message
    messages = QUESTION + [message.model_dump(exclude_none=True),
                           {'role': 'tool', 'tool_call_id': message.tool_calls[0].id, 'content': '12 o\'clock <|end|>'}]
    answer = client.chat.completions.create(model='tiny-llama', messages=messages, tools=[NOW], temperature=0, max_tokens=20)
    assert answer.choices[0].finish_reason in ('stop', 'length', 'tool_calls')
    body = {'model': 'tiny-llama', 'messages': messages, 'tools': [NOW]}
    prompt = http(server.url + '/apply-template', body)[2]['prompt']
    assert '12 o\'clock' in prompt and '{"name":"now","arguments":{}}' in prompt and '<tools>' in prompt
    # What a tool says is no control token.
    tokens = http(server.url + '/tokenize', {**body, 'return_token_strs': True})[2]['token_strs']
    assert tokens.count('<|end|>') == prompt.count('<|end|>') - 1


def test_choices_call_on_their_own(client):
    answer = client.chat.completions.create(model='tiny-qwen3', messages=QUESTION, tools=[WEATHER], tool_choice='required', n=3,
                                            max_tokens=300, seed=5)
    for choice in answer.choices:
        for call in choice.message.tool_calls:
            check(call)
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize('more, param', [
    ({'tools': [{'type': 'function'}]}, 'tools.[0].function'),
    ({'tools': [{'type': 'function', 'function': {'name': 'a b'}}]}, 'tools.[0].function.name'),
    ({'tools': [WEATHER, WEATHER]}, 'tools.[1].function.name'),
    ({'tools': [WEATHER], 'tool_choice': {'type': 'function', 'function': {'name': 'f'}}}, 'tool_choice'),
    ({'tool_choice': 'required'}, 'tool_choice'),
    ({'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'tool_calls': [
        {'id': 'c', 'type': 'function', 'function': {'name': 'f', 'arguments': '{'}}]}]}, 'messages.[1].tool_calls.[0].function.arguments'),
    ({'tools': [{'type': 'function', 'function': {'name': 'f', 'strict': True, 'parameters': {
        'type': 'object', 'properties': {'a': {'not': {}}}, 'required': ['a']}}}], 'tool_choice': 'required'}, 'tools'),
])
def test_bad_tools_are_refused_by_name(client, more, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{'model': 'tiny-llama', 'messages': QUESTION, **more})
    assert refused.value.param == param


def test_the_prompt_of_tokenize_is_the_one_of_chat(server, client):
    body = {'model': 'tiny-llama', 'messages': QUESTION, 'tools': [WEATHER]}
    answer = client.chat.completions.create(**body, max_tokens=1)
    assert http(server.url + '/tokenize', body)[2]['count'] == answer.usage.prompt_tokens
