"""Qdrant's HTTP API over Qdrant's own engine (qdrant-edge-py): the calls of the official client that Phaselock makes.

The engine, its storage and its log are Qdrant's. The HTTP is ours, so this shows nothing about Qdrant's own server: its cluster,
its limits, its authentication. Arguments: folder of the data, port. PYTHONPATH has the engine.
"""
import json
import os
import re
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from qdrant_edge import (
    CountRequest, Distance, EdgeConfig, EdgeShard, EdgeVectorParams, FieldCondition, Filter, HasIdCondition, MatchAny, MatchValue,
    PayloadSchemaType, Point, Query, QueryRequest, RangeFloat, ScrollRequest, UpdateOperation,
)

ROOT, PORT = sys.argv[1], int(sys.argv[2])
DISTANCES = {'Cosine': Distance.Cosine, 'Dot': Distance.Dot, 'Euclid': Distance.Euclid}
TYPES = {'keyword': PayloadSchemaType.Keyword, 'integer': PayloadSchemaType.Integer}
DONE = {'operation_id': 0, 'status': 'completed'}
# The engine takes one call at a time; a second thread would wait inside of it.
lock = threading.RLock()


class Refused(Exception):
    def __init__(self, status, problem):
        super().__init__(problem)
        self.status = status


class Collection:
    """A shard, and beside it what the server was told when it was made, written last: without it the collection doesn't exist."""

    def __init__(self, name, shard, about):
        self.name, self.shard, self.about = name, shard, about

    @staticmethod
    def create(name, body):
        folder, vectors = f'{ROOT}/{name}', body['vectors']
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        params = EdgeVectorParams(size=vectors['size'], distance=DISTANCES[vectors['distance']])
        shard = EdgeShard.create(f'{folder}/shard', EdgeConfig(vectors={'': params}))
        about = {'vectors': vectors, 'metadata': body.get('metadata'), 'schema': {}}
        return Collection(name, shard, about).written()

    @staticmethod
    def load(name):
        with open(f'{ROOT}/{name}/about.json') as file:
            return Collection(name, EdgeShard.load(f'{ROOT}/{name}/shard'), json.load(file))

    def written(self):
        with open(f'{ROOT}/{self.name}/about.new', 'w') as file:
            json.dump(self.about, file)
        os.replace(f'{ROOT}/{self.name}/about.new', f'{ROOT}/{self.name}/about.json')
        return self

    def drop(self):
        os.remove(f'{ROOT}/{self.name}/about.json')
        self.shard.close()
        shutil.rmtree(f'{ROOT}/{self.name}')

    def answer(self, method, path, body):
        size = self.about['vectors']['size']
        filter_ = filter_of(body.get('filter'))
        if path == '':
            config = {'params': {'vectors': self.about['vectors']}, 'metadata': self.about['metadata']}
            schema = {field: {'data_type': kind, 'points': 0} for field, kind in self.about['schema'].items()}
            points = self.shard.count(CountRequest(exact=True))
            return {'status': 'green', 'points_count': points, 'config': config, 'payload_schema': schema}
        if path == '/index':
            self.shard.update(UpdateOperation.create_field_index(body['field_name'], TYPES[body['field_schema']]))
            self.about['schema'][body['field_name']] = body['field_schema']
            self.written()
            return DONE
        if path == '/points' and method == 'PUT':
            for point in body['points']:
                if len(point['vector']) != size:
                    problem = f"Vector dimension error: expected dim: {size}, got {len(point['vector'])}"
                    raise Refused(400, f'Wrong input: {problem}')
            points = [Point(id=p['id'], vector=p['vector'], payload=p.get('payload') or {}) for p in body['points']]
            self.shard.update(UpdateOperation.upsert_points(points, condition=filter_of(body.get('update_filter'))))
            return DONE
        if path == '/points/delete':
            by_id = 'points' in body
            self.shard.update(
                UpdateOperation.delete_points(body['points']) if by_id else UpdateOperation.delete_points_by_filter(filter_))
            return DONE
        if path == '/points/count':
            return {'count': self.shard.count(CountRequest(exact=True, filter=filter_))}
        if path == '/points/scroll':
            rows, following = self.shard.scroll(ScrollRequest(
                offset=body.get('offset'), limit=body.get('limit', 10), filter=filter_, with_payload=True))
            page = [{'id': str(row.id), 'payload': row.payload} for row in rows]
            return {'points': page, 'next_page_offset': None if following is None else str(following)}
        if path == '/points/query':
            if len(body['query']) != size:
                raise Refused(400, f"Wrong input: Vector dimension error: expected dim: {size}, got {len(body['query'])}")
            hits = self.shard.query(QueryRequest(
                query=Query.Nearest(body['query']), limit=body.get('limit', 10), filter=filter_, with_payload=True))
            return {'points': [{'id': str(h.id), 'version': 0, 'score': h.score, 'payload': h.payload} for h in hits]}
        raise Refused(404, f'Not found: {method} {path} is not among the calls of this server')


def condition_of(given):
    if 'has_id' in given:
        return HasIdCondition(set(given['has_id']))
    if 'key' not in given:
        return filter_of(given)
    match, bounds = given.get('match'), given.get('range')
    if match is not None:
        match = MatchValue(match['value']) if 'value' in match else MatchAny(match['any'])
    return FieldCondition(key=given['key'], match=match, range=RangeFloat(**bounds) if bounds else None)


def filter_of(given):
    if not given:
        return None
    parts = {part: [condition_of(one) for one in given[part]] for part in ('must', 'should', 'must_not') if given.get(part)}
    return Filter(**parts)


collections = {}


def answer(method, path, body):
    if path == '/':
        return None
    if path == '/collections':
        return {'collections': [{'name': name} for name in collections]}
    found = re.fullmatch(r'/collections/([A-Za-z0-9_.-]+)(/.*)?', path)
    if not found:
        raise Refused(404, f'Not found: {path}')
    name, rest = found[1], found[2] or ''
    with lock:
        collection = collections.get(name)
        if rest == '/exists':
            return {'exists': collection is not None}
        if rest == '' and method == 'PUT':
            if collection:
                raise Refused(409, f'Wrong input: Collection `{name}` already exists!')
            collections[name] = Collection.create(name, body)
            return True
        if collection is None:
            raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
        if rest == '' and method == 'DELETE':
            collections.pop(name).drop()
            return True
        return collection.answer(method, rest, body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    # Head and body of an answer in one packet each would wait for the client's delayed acknowledgement: 40 ms a call.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def go(self):
        body = self.rfile.read(int(self.headers.get('content-length') or 0))
        status, result, problem = 200, None, None
        try:
            result = answer(self.command, self.path.split('?')[0], json.loads(body or b'{}'))
        except Refused as refused:
            status, problem = refused.status, str(refused)
        except Exception as error:  # The engine has no classes of its own for what it refuses.
            status, problem = 400, f'{type(error).__name__}: {error}'
        text = {'result': result, 'status': 'ok' if problem is None else {'error': problem}, 'time': 0}
        if self.path == '/':
            text = {'title': 'qdrant - vector search engine', 'version': '1.18.0'}
        data = json.dumps(text).encode()
        self.send_response(status)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = go


class Server(ThreadingHTTPServer):
    request_queue_size = 128


os.makedirs(ROOT, exist_ok=True)
for entry in os.listdir(ROOT):
    if os.path.exists(f'{ROOT}/{entry}/about.json'):
        collections[entry] = Collection.load(entry)
    else:
        shutil.rmtree(f'{ROOT}/{entry}')
Server(('127.0.0.1', PORT), Handler).serve_forever()
