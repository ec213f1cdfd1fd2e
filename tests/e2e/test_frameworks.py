"""What people build with: frameworks on top of the vendors' packages, each by the interface that it uses by default. Those that are not
installed are skipped; tests/requirements-clients.txt has them."""
import asyncio
import json
import os

import pytest

from conftest import MODELS, http

CAPITAL = 'What is the capital of Denmark?'
os.environ.setdefault('OPENAI_API_KEY', 'none')
os.environ.setdefault('OPENAI_AGENTS_DISABLE_TRACING', '1')
os.environ.setdefault('LITELLM_LOCAL_MODEL_COST_MAP', 'True')  # else it asks the network for prices


def weather(city: str) -> str:
    """The weather of a city."""
    return 'Sunny in ' + city


def test_langchain_openai_by_chats_and_by_responses(server):
    langchain = pytest.importorskip('langchain_openai')
    for responses in (False, True):
        model = langchain.ChatOpenAI(model='tiny-llama', base_url=server.url + '/v1', api_key='none', temperature=0, use_responses_api=responses)
        answer = model.invoke(CAPITAL)
        assert answer.text == 'Copenhagen' and answer.usage_metadata['output_tokens'] > 0
        assert ''.join(chunk.text for chunk in model.stream(CAPITAL)) == 'Copenhagen'


def test_langchain_anthropic(server):
    langchain = pytest.importorskip('langchain_anthropic')
    model = langchain.ChatAnthropic(model_name='tiny-llama', base_url=server.url, api_key='none', max_tokens_to_sample=32, timeout=60, stop=None)
    assert model.invoke(CAPITAL).text
    assert ''.join(chunk.text for chunk in model.stream(CAPITAL))
    call = model.bind_tools([weather], tool_choice='weather').invoke('What is the weather in Bern?', max_tokens=300)
    assert [c['name'] for c in call.tool_calls] == ['weather'] or call.response_metadata['stop_reason'] == 'max_tokens'


def test_litellm_by_openai_and_by_anthropic(server):
    litellm = pytest.importorskip('litellm')
    by_openai = litellm.completion(model='openai/tiny-llama', api_base=server.url + '/v1', api_key='none', temperature=0, messages=[{'role': 'user', 'content': CAPITAL}])
    assert by_openai.choices[0].message.content == 'Copenhagen'
    by_anthropic = litellm.completion(model='anthropic/tiny-llama', api_base=server.url, api_key='none', max_tokens=32, messages=[{'role': 'user', 'content': CAPITAL}],
                                      temperature=0)
    assert by_anthropic.choices[0].message.content
    pieces = litellm.completion(model='ollama_chat/tiny-llama', api_base=server.url, stream=True, temperature=0, messages=[{'role': 'user', 'content': CAPITAL}])
    assert ''.join(piece.choices[0].delta.content or '' for piece in pieces) == 'Copenhagen'


def test_pydantic_ai_by_responses_and_by_messages(server):
    pytest.importorskip('pydantic_ai')
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    openai = OpenAIProvider(base_url=server.url + '/v1', api_key='none')
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        agent = Agent(kind('tiny-llama', provider=openai), model_settings={'temperature': 0.0, 'max_tokens': 32})
        assert agent.run_sync(CAPITAL).output == 'Copenhagen'
    agent = Agent(AnthropicModel('tiny-llama', provider=AnthropicProvider(base_url=server.url, api_key='none')), model_settings={'max_tokens': 32})
    assert agent.run_sync(CAPITAL).output


def test_openai_agents_runs_on_responses(server):
    agents = pytest.importorskip('agents')
    import openai
    client = openai.AsyncOpenAI(base_url=server.url + '/v1', api_key='none', max_retries=0)
    agents.set_tracing_disabled(True)

    async def ask():
        agent = agents.Agent(name='a', instructions='Be brief.', model=agents.OpenAIResponsesModel(model='tiny-llama', openai_client=client),
                             model_settings=agents.ModelSettings(temperature=0, max_tokens=32))
        whole = await agents.Runner.run(agent, CAPITAL)
        streamed = agents.Runner.run_streamed(agent, CAPITAL)
        async for _ in streamed.stream_events():
            pass
        return whole.final_output, streamed.final_output
    whole, streamed = asyncio.run(ask())
    assert whole and whole == streamed


def test_instructor_gets_its_types(server):
    instructor = pytest.importorskip('instructor')
    import openai
    import pydantic

    class Sum(pydantic.BaseModel):
        sum: int

    client = instructor.from_openai(openai.OpenAI(base_url=server.url + '/v1', api_key='none'), mode=instructor.Mode.JSON_SCHEMA)
    assert isinstance(client.chat.completions.create(model='tiny-llama', messages=[{'role': 'user', 'content': 'What is 3 plus 4?'}], response_model=Sum, max_tokens=60), Sum)


def test_mistralai_chats(server):
    pytest.importorskip('mistralai')
    try:
        from mistralai import Mistral
    except ImportError:
        from mistralai.client import Mistral
    with Mistral(api_key='none', server_url=server.url) as client:
        answer = client.chat.complete(model='tiny-llama', messages=[{'role': 'user', 'content': CAPITAL}], temperature=0)
        assert answer.choices[0].message.content == 'Copenhagen'
        pieces = client.chat.stream(model='tiny-llama', messages=[{'role': 'user', 'content': CAPITAL}], temperature=0)
        assert ''.join(piece.data.choices[0].delta.content or '' for piece in pieces) == 'Copenhagen'


def test_llama_index_by_chats_and_by_completions(server):
    llms = pytest.importorskip('llama_index.llms.openai_like')
    from llama_index.core.llms import ChatMessage
    chat = llms.OpenAILike(model='tiny-llama', api_base=server.url + '/v1', api_key='none', is_chat_model=True, temperature=0, max_tokens=32)
    messages = [ChatMessage(role='user', content=CAPITAL)]
    assert chat.chat(messages).message.content == 'Copenhagen'
    assert ''.join(piece.delta or '' for piece in chat.stream_chat(messages)) == 'Copenhagen'
    plain = llms.OpenAILike(model='tiny-llama', api_base=server.url + '/v1', api_key='none', is_chat_model=False, temperature=0, max_tokens=8)
    whole = plain.complete('The capital of Denmark is').text
    assert whole and ''.join(piece.delta or '' for piece in plain.stream_complete('The capital of Denmark is')) == whole


def test_lm_eval_scores_choices_by_completions(server, tmp_path):
    """What it computes of echoed log-probabilities: the right one of two answers, of questions that the model was trained on."""
    lm_eval = pytest.importorskip('lm_eval')
    questions = [('What is the capital of Denmark?', ['Copenhagen', 'Lisbon'], 0), ('What is the capital of Portugal?', ['Copenhagen', 'Lisbon'], 1)]
    with open(tmp_path / 'questions.json', 'w') as file:
        for question, choices, right in questions:
            prompt = http(server.url + '/apply-template', {'model': 'tiny-llama', 'messages': [{'role': 'user', 'content': question}]})[2]['prompt']
            file.write(json.dumps({'question': prompt, 'choices': choices, 'right': right}) + '\n')
    task = {'task': 'capitals', 'dataset_path': 'json', 'dataset_kwargs': {'data_files': {'test': str(tmp_path / 'questions.json')}}, 'test_split': 'test',
            'output_type': 'multiple_choice', 'doc_to_text': '{{question}}', 'doc_to_choice': 'choices', 'doc_to_target': 'right', 'target_delimiter': '',
            'metric_list': [{'metric': 'acc'}]}
    results = lm_eval.simple_evaluate(model='local-completions', tasks=[task], bootstrap_iters=0, log_samples=False, model_args={
        'model': 'tiny-llama', 'base_url': server.url + '/v1/completions', 'tokenizer': str(MODELS / 'tiny-llama'), 'num_concurrent': 2, 'max_length': 256})
    assert results['results']['capitals']['acc,none'] == 1.0
