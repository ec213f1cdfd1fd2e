"""The vendors' own packages against the interfaces beside OpenAI's chats: Anthropic's, OpenAI's responses, Ollama's."""
import json

import anthropic
import ollama
import openai
import pytest

from conftest import NAMES, http

GREEDY = {'temperature': 0}  # which the package has no argument for any more
CAPITAL = 'What is the capital of Denmark?'
WEATHER = {'type': 'object', 'properties': {'city': {'type': 'string', 'maxLength': 12}, 'unit': {'type': 'string', 'enum': ['C', 'F']}},
           'required': ['city', 'unit'], 'additionalProperties': False}
ANSWER = {'type': 'object', 'properties': {'sum': {'type': 'integer', 'minimum': 0, 'maximum': 99}}, 'required': ['sum'], 'additionalProperties': False}


@pytest.fixture(scope='module')
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key='none', max_retries=0, timeout=120)


@pytest.fixture(scope='module')
def olla(server):
    return ollama.Client(host=server.url, timeout=120)


# ---- Anthropic's ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('model', NAMES)
def test_a_message_whole_and_streamed_is_the_same(claude, model):
    ask = dict(model=model, max_tokens=32, extra_body=GREEDY, messages=[{'role': 'user', 'content': CAPITAL}])
    whole = claude.messages.create(**ask)
    assert [block.type for block in whole.content] == ['text'] and whole.content[0].text == 'Copenhagen'
    assert whole.stop_reason == 'end_turn' and whole.usage.output_tokens > 0
    with claude.messages.stream(**ask) as stream:
        assert ''.join(stream.text_stream) == 'Copenhagen'
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text and final.stop_reason == whole.stop_reason
    total = lambda usage: usage.input_tokens + usage.cache_read_input_tokens
    assert total(final.usage) == total(whole.usage)
    count = claude.messages.count_tokens(model=model, messages=ask['messages'])
    assert count.input_tokens == total(whole.usage)


def test_stop_sequences_and_limits_are_told_apart(claude):
    ask = dict(model='tiny-llama', extra_body=GREEDY, messages=[{'role': 'user', 'content': CAPITAL}])
    stopped = claude.messages.create(max_tokens=32, stop_sequences=['hag'], **ask)
    assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == ('stop_sequence', 'hag', 'Copen')
    assert claude.messages.create(max_tokens=2, **ask).stop_reason == 'max_tokens'


@pytest.mark.parametrize('seed', range(3))
def test_tool_use_streams_into_the_clients_own_parser(claude, seed):
    ask = dict(model='tiny-qwen3', max_tokens=300, extra_body={'temperature': 1, 'seed': seed}, tools=[{'name': 'get_weather', 'input_schema': WEATHER}],
               tool_choice={'type': 'tool', 'name': 'get_weather'}, messages=[{'role': 'user', 'content': 'What is the weather in Bern?'}])
    whole = claude.messages.create(**ask)
    assert whole.stop_reason == 'tool_use'
    (use,) = [block for block in whole.content if block.type == 'tool_use']
    assert set(use.input) == {'city', 'unit'} and use.input['unit'] in 'CF'
    with claude.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    (again,) = [block for block in final.content if block.type == 'tool_use']
    assert (again.name, again.input) == (use.name, use.input)
    go_on = ask['messages'] + [{'role': 'assistant', 'content': whole.content},
                               {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': use.id, 'content': 'Sunny'}]}]
    assert claude.messages.create(**{**ask, 'messages': go_on, 'tool_choice': {'type': 'none'}}).type == 'message'


def test_a_schema_holds(claude):
    reply = claude.messages.create(model='tiny-llama', max_tokens=60, messages=[{'role': 'user', 'content': 'What is 3 plus 4?'}],
                                   extra_body={'output_config': {'format': {'type': 'json_schema', 'schema': ANSWER}}})
    assert 0 <= json.loads(reply.content[0].text)['sum'] <= 99


def test_headers_that_bill_do_not_break_the_prefix_cache(claude, server):
    def ask(bill):
        system = [{'type': 'text', 'text': f'x-anthropic-billing-header: cc_version=1; cch={bill};'}, {'type': 'text', 'text': 'You answer questions about capitals. ' * 12}]
        return claude.messages.create(model='tiny-llama', max_tokens=4, system=system, messages=[{'role': 'user', 'content': CAPITAL}])
    ask('00aa1')
    assert ask('7b2c9').usage.cache_read_input_tokens > 0


def test_errors_are_the_clients_own_classes(claude, server):
    ask = dict(max_tokens=4, messages=[{'role': 'user', 'content': 'x'}])
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model='nobody', **ask)
    with pytest.raises(anthropic.BadRequestError, match='image'):
        claude.messages.create(model='tiny-llama', max_tokens=4, messages=[{'role': 'user', 'content': [
            {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': 'aGk='}}]}])
    with pytest.raises(anthropic.BadRequestError) as long:
        claude.messages.create(model='tiny-llama', max_tokens=4, messages=[{'role': 'user', 'content': 'word ' * 5000}])
    assert long.value.body['error']['type'] == 'invalid_request_error'
    assert http(server.url + '/readyz')[0] == 200


# ---- OpenAI's responses ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('model', NAMES)
def test_a_response_whole_and_streamed_is_the_same(client, model):
    whole = client.responses.create(model=model, input=CAPITAL, temperature=0)
    assert whole.output_text == 'Copenhagen' and whole.status == 'completed'
    with client.responses.stream(model=model, input=CAPITAL, temperature=0) as stream:
        text = ''.join(event.delta for event in stream if event.type == 'response.output_text.delta')
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text
    assert final.usage.total_tokens == whole.usage.total_tokens


def test_a_conversation_goes_on_by_id_or_by_its_items(client):
    first = client.responses.create(model='tiny-llama', input=CAPITAL, instructions='Be brief.', temperature=0)
    by_id = client.responses.create(model='tiny-llama', input='What is the capital of France?', previous_response_id=first.id, temperature=0)
    items = [{'role': 'user', 'content': CAPITAL}, *first.output, {'role': 'user', 'content': 'What is the capital of France?'}]
    by_items = client.responses.create(model='tiny-llama', input=items, temperature=0, store=False)
    assert by_id.output_text == by_items.output_text
    assert by_id.usage.input_tokens == by_items.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text
    assert len(client.responses.input_items.list(first.id).data) == 1
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as gone:
        client.responses.create(model='tiny-llama', input='x', previous_response_id=first.id)
    assert gone.value.code == 'previous_response_not_found'


def test_functions_and_freeform_tools(client):
    tools = [{'type': 'function', 'name': 'get_weather', 'parameters': WEATHER, 'strict': True}]
    ask = dict(model='tiny-qwen3', input='What is the weather in Bern?', tools=tools, tool_choice='required', max_output_tokens=300, extra_body={'seed': 5})
    whole = client.responses.create(**ask)
    (call,) = [item for item in whole.output if item.type == 'function_call']
    assert set(json.loads(call.arguments)) == {'city', 'unit'}
    with client.responses.stream(**ask) as stream:
        final = stream.get_final_response()
    assert [item.arguments for item in final.output if item.type == 'function_call'] == [call.arguments]
    items = [{'role': 'user', 'content': 'What is the weather in Bern?'}, *whole.output, {'type': 'function_call_output', 'call_id': call.call_id, 'output': 'Sunny'}]
    assert client.responses.create(model='tiny-qwen3', input=items, tools=tools, tool_choice='none', max_output_tokens=20).output
    custom = client.responses.create(model='tiny-llama', input='Patch it.', tools=[{'type': 'custom', 'name': 'patch'}],
                                     tool_choice={'type': 'custom', 'name': 'patch'}, max_output_tokens=400, extra_body={'seed': 1})
    assert [item.type for item in custom.output] == ['custom_tool_call'] or custom.status == 'incomplete'


def test_a_parsed_response_holds_to_its_type(client):
    import pydantic

    class Sum(pydantic.BaseModel):
        sum: int

    assert isinstance(client.responses.parse(model='tiny-llama', input='What is 3 plus 4?', text_format=Sum, max_output_tokens=60).output_parsed, Sum)


# ---- Ollama's -------------------------------------------------------------------------------------------------------------------

def test_ollama_chats_and_generates(olla):
    ask = dict(model='tiny-llama', messages=[{'role': 'user', 'content': CAPITAL}], options={'temperature': 0, 'num_predict': 32})
    whole = olla.chat(**ask)
    assert whole.message.content == 'Copenhagen' and whole.done and whole.eval_count > 0
    assert ''.join(part.message.content for part in olla.chat(stream=True, **ask)) == 'Copenhagen'
    assert olla.generate(model='tiny-llama:latest', prompt=CAPITAL, options={'temperature': 0}).response == 'Copenhagen'
    assert json.loads(olla.chat(format=ANSWER, **ask).message.content)['sum'] >= 0


def test_ollama_lists_and_shows_models(olla, server):
    assert {'tiny-llama', 'tiny-qwen3'} <= {model.model for model in olla.list().models}
    olla.generate(model='tiny-llama', prompt='x', options={'num_predict': 1})
    assert 'tiny-llama' in {model.model for model in olla.ps().models}
    shown = olla.show('tiny-llama')
    assert 'completion' in shown.capabilities and shown.modelinfo[shown.modelinfo['general.architecture'] + '.context_length'] == 2048
    assert olla.pull('tiny-llama').status == 'success'
    with pytest.raises(ollama.ResponseError, match='shoal reload'):
        olla.pull('somebody/else')
    with pytest.raises(ollama.ResponseError):
        olla.chat(model='nobody', messages=[{'role': 'user', 'content': 'x'}])
    assert http(server.url + '/api/version')[2]['version']


# ---- llama.cpp's ----------------------------------------------------------------------------------------------------------------

def test_llama_cpp_spells_it_this_way(server):
    status, _, whole = http(server.url + '/completion', {'model': 'tiny-llama', 'prompt': 'The capital of Denmark is', 'n_predict': 8, 'temperature': 0})
    assert status == 200 and whole['stop'] and whole['tokens_predicted'] <= 8 and whole['timings']['predicted_n'] == whole['tokens_predicted']
    streamed = http(server.url + '/completion', {'model': 'tiny-llama', 'prompt': 'The capital of Denmark is', 'n_predict': 8, 'temperature': 0, 'stream': True})[2]
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith('data: ')]
    assert ''.join(event['content'] for event in events) == whole['content'] and events[-1]['stop']
    props = http(server.url + '/props?model=tiny-llama')[2]
    assert props['default_generation_settings']['n_ctx'] == 2048 and props['chat_template']
    tokens = http(server.url + '/tokenize', {'model': 'tiny-llama', 'content': 'Hello'})[2]['tokens']
    assert http(server.url + '/detokenize', {'model': 'tiny-llama', 'tokens': tokens})[2]['content'] == 'Hello'
    assert all('prompt' not in slot for slot in http(server.url + '/slots')[2])
