"""A server that speaks Qdrant's gRPC protocol, for tests: it answers the messages of Qdrant's client with Qdrant's engine.

No package of a registry has Qdrant's server. Its engine is in PyPI's `qdrant-edge-py` (segments, payload indices, filters,
scoring, write-ahead log); messages and their conversions are those of PyPI's `qdrant-client`. What is written here is only
between the two: collections with metadata, and statuses. A field that the protocol does not have is refused.

    python server.py --data DIR [--port PORT] [--api-key KEY]

prints its port, and ends when its standard input is closed.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import threading
from concurrent import futures

import grpc as rpc
import qdrant_edge as edge
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.unknown_fields import UnknownFieldSet
from qdrant_client import grpc
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.http import models

# Of the server whose engine it is.
VERSION = "1.19.0"
# A graph is built from this many KB of vectors, as with a small `indexing_threshold` of the server.
GRAPH_KB = 100

DISTANCES = {
    models.Distance.COSINE: edge.Distance.Cosine,
    models.Distance.EUCLID: edge.Distance.Euclid,
    models.Distance.DOT: edge.Distance.Dot,
}
FIELD_TYPES = {
    grpc.FieldType.FieldTypeKeyword: edge.PayloadSchemaType.Keyword,
    grpc.FieldType.FieldTypeFloat: edge.PayloadSchemaType.Float,
}
SCHEMA_TYPES = {"Keyword": grpc.PayloadSchemaType.Keyword, "Float": grpc.PayloadSchemaType.Float}


class Refused(Exception):
    """A call that ends with a status."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def known(message):
    """Refuses fields that the protocol does not have."""
    for field in UnknownFieldSet(message):
        raise Refused(rpc.StatusCode.INVALID_ARGUMENT, f"{message.DESCRIPTOR.name} has no field {field.field_number}")
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = value.values() if field.message_type.fields_by_name["value"].message_type else []
        else:
            values = value if field.is_repeated else [value]
        for one in values:
            known(one)


def condition(one):
    """A condition of the client's models as one of the engine."""
    if isinstance(one, models.Filter):
        return filters(one)
    if isinstance(one, models.IsEmptyCondition):
        return edge.IsEmptyCondition(one.is_empty.key)
    if isinstance(one, models.HasIdCondition):
        return edge.HasIdCondition(set(one.has_id))
    if isinstance(one, models.FieldCondition) and isinstance(one.match, models.MatchAny):
        return edge.FieldCondition(one.key, match=edge.MatchAny(one.match.any))
    if isinstance(one, models.FieldCondition) and isinstance(one.range, models.Range):
        limits = one.range
        limits = edge.RangeFloat(gte=limits.gte, gt=limits.gt, lte=limits.lte, lt=limits.lt)
        return edge.FieldCondition(one.key, range=limits)
    raise Refused(rpc.StatusCode.UNIMPLEMENTED, f"no test needs {one}")


def filters(one):
    """A filter of the client's models as one of the engine."""
    conditions = lambda several: [condition(part) for part in several] if several else None
    return edge.Filter(
        must=conditions(one.must), should=conditions(one.should), must_not=conditions(one.must_not)
    )


def filter_of(request):
    return filters(GrpcToRest.convert_filter(request.filter)) if request.HasField("filter") else None


def payload_selector(request):
    if not request.with_payload.WhichOneof("selector_options"):
        return False
    selector = GrpcToRest.convert_with_payload_selector(request.with_payload)
    return selector if isinstance(selector, bool) else list(selector)


def vectors_selector(request):
    if not request.with_vectors.WhichOneof("selector_options"):
        return False
    selector = GrpcToRest.convert_with_vectors_selector(request.with_vectors)
    return selector if isinstance(selector, bool) else list(selector)


def retrieved(record):
    vectors = record.vector or {}
    vectors = {name: grpc.VectorOutput(dense=grpc.DenseVector(data=row)) for name, row in vectors.items()}
    return grpc.RetrievedPoint(
        id=grpc.PointId(num=record.id),
        payload=RestToGrpc.convert_payload(record.payload or {}),
        vectors=grpc.VectorsOutput(vectors=grpc.NamedVectorsOutput(vectors=vectors)) if vectors else None,
    )


class Collection:
    """A shard of the engine, and what the server keeps of a collection."""

    def __init__(self, folder, request=None):
        self.folder = folder
        self.lock = threading.Lock()
        self.sent = 0
        if request is None:
            self.request = ParseDict(json.loads((folder / "collection.json").read_text()), grpc.CreateCollection())
            self.shard = edge.EdgeShard.load(str(folder / "shard"))
        else:
            self.request = request
            (folder / "shard").mkdir(parents=True)
            self.shard = edge.EdgeShard.create(str(folder / "shard"), self.config())
            self.save()

    def save(self):
        new = self.folder / "new.json"
        new.write_text(json.dumps(MessageToDict(self.request)))
        new.rename(self.folder / "collection.json")

    def config(self):
        vectors = {}
        for name, params in GrpcToRest.convert_vectors_config(self.request.vectors_config).items():
            graph = params.hnsw_config
            graph = edge.HnswIndexConfig(m=graph.m, ef_construct=graph.ef_construct or 100, full_scan_threshold=10)
            vectors[name] = edge.EdgeVectorParams(
                size=params.size, distance=DISTANCES[params.distance], hnsw_config=graph, on_disk=params.on_disk
            )
        return edge.EdgeConfig(vectors=vectors, optimizers=edge.EdgeOptimizersConfig(indexing_threshold=GRAPH_KB))

    def has_graph(self):
        return any(params.hnsw_config.m for params in self.request.vectors_config.params_map.map.values())

    def update(self, operation, count=0):
        with self.lock:
            self.shard.update(operation)
            self.sent += count
            if self.sent >= 1000 and self.has_graph():
                self.shard.optimize()
                self.sent = 0


class Server(grpc.QdrantServicer, grpc.CollectionsServicer, grpc.PointsServicer):
    """The three services."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        folders = [entry for entry in folder.iterdir() if (entry / "collection.json").is_file()]
        self.collections = {entry.name: Collection(entry) for entry in folders}

    def of(self, request):
        collection = self.collections.get(request.collection_name)
        if collection is None:
            text = f"Not found: Collection `{request.collection_name}` doesn't exist!"
            raise Refused(rpc.StatusCode.NOT_FOUND, text)
        return collection

    def HealthCheck(self, request, context):
        return grpc.HealthCheckReply(title="qdrant - vector search engine", version=VERSION)

    def CollectionExists(self, request, context):
        result = grpc.CollectionExists(exists=request.collection_name in self.collections)
        return grpc.CollectionExistsResponse(result=result)

    def Create(self, request, context):
        with self.lock:
            name = request.collection_name
            if name in self.collections:
                text = f"Wrong input: Collection `{name}` already exists!"
                raise Refused(rpc.StatusCode.ALREADY_EXISTS, text)
            self.collections[name] = Collection(self.folder / name, request)
        return grpc.CollectionOperationResponse(result=True)

    def Update(self, request, context):
        collection = self.of(request)
        with collection.lock:
            for key, value in request.metadata.items():
                collection.request.metadata[key].CopyFrom(value)
            collection.save()
        return grpc.CollectionOperationResponse(result=True)

    def Delete(self, request, context):
        # Both services have a method of this name.
        if isinstance(request, grpc.DeleteCollection):
            with self.lock:
                collection = self.collections.pop(request.collection_name, None)
            if collection is not None:
                collection.shard.close()
                shutil.rmtree(collection.folder)
            return grpc.CollectionOperationResponse(result=collection is not None)
        ids = [GrpcToRest.convert_point_id(id) for id in request.points.points.ids]
        self.of(request).update(edge.UpdateOperation.delete_points(ids))
        return self.completed(request)

    def Get(self, request, context):
        if isinstance(request, grpc.GetPoints):
            ids = [GrpcToRest.convert_point_id(id) for id in request.ids]
            shard = self.of(request).shard
            records = shard.retrieve(ids, payload_selector(request), vectors_selector(request))
            return grpc.GetResponse(result=[retrieved(record) for record in records])
        collection = self.of(request)
        info = collection.shard.info()
        schema = {
            key: grpc.PayloadSchemaInfo(data_type=SCHEMA_TYPES[str(one.data_type).split(".")[-1]], points=one.points)
            for key, one in info.payload_schema.items()
        }
        params = grpc.CollectionParams(
            shard_number=1,
            on_disk_payload=True,
            vectors_config=collection.request.vectors_config,
            replication_factor=1,
            write_consistency_factor=1,
        )
        config = grpc.CollectionConfig(
            params=params,
            hnsw_config=grpc.HnswConfigDiff(m=16, ef_construct=100, full_scan_threshold=10_000),
            optimizer_config=grpc.OptimizersConfigDiff(
                deleted_threshold=0.2, vacuum_min_vector_number=1000, default_segment_number=0, flush_interval_sec=5
            ),
            wal_config=grpc.WalConfigDiff(wal_capacity_mb=32, wal_segments_ahead=0),
            metadata=collection.request.metadata,
        )
        result = grpc.CollectionInfo(
            status=grpc.CollectionStatus.Green,
            optimizer_status=grpc.OptimizerStatus(ok=True),
            segments_count=info.segments_count,
            config=config,
            payload_schema=schema,
            points_count=info.points_count,
            indexed_vectors_count=info.indexed_vectors_count,
        )
        return grpc.GetCollectionInfoResponse(result=result)

    def completed(self, request):
        if not request.wait:
            raise Refused(rpc.StatusCode.UNIMPLEMENTED, "no test needs a change that is not waited for")
        return grpc.PointsOperationResponse(result=grpc.UpdateResult(status=grpc.UpdateStatus.Completed))

    def CreateFieldIndex(self, request, context):
        kind = FIELD_TYPES[request.field_type]
        self.of(request).update(edge.UpdateOperation.create_field_index(request.field_name, kind))
        return self.completed(request)

    def Upsert(self, request, context):
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        points = [edge.Point(point.id, point.vector, point.payload) for point in points]
        self.of(request).update(edge.UpdateOperation.upsert_points(points), len(points))
        return self.completed(request)

    def Scroll(self, request, context):
        scroll = edge.ScrollRequest(
            offset=GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None,
            limit=request.limit if request.HasField("limit") else 10,
            filter=filter_of(request),
            with_payload=payload_selector(request),
            with_vector=vectors_selector(request),
        )
        records, following = self.of(request).shard.scroll(scroll)
        following = None if following is None else grpc.PointId(num=following)
        return grpc.ScrollResponse(result=[retrieved(record) for record in records], next_page_offset=following)

    def Count(self, request, context):
        count = self.of(request).shard.count(edge.CountRequest(exact=request.exact, filter=filter_of(request)))
        return grpc.CountResponse(result=grpc.CountResult(count=count))

    def QueryBatch(self, request, context):
        queries = []
        for points in request.query_points:
            query = GrpcToRest.convert_query(points.query).nearest
            params = GrpcToRest.convert_search_params(points.params)
            queries.append(
                edge.QueryRequest(
                    limit=points.limit,
                    query=edge.Query.Nearest(query, using=points.using),
                    filter=filter_of(points),
                    params=edge.SearchParams(hnsw_ef=params.hnsw_ef, exact=bool(params.exact)),
                    with_payload=payload_selector(points),
                    with_vector=vectors_selector(points),
                )
            )
        lists = self.of(request).shard.query_batch(edge.QueryBatchRequest(queries))
        point = lambda one: grpc.ScoredPoint(id=grpc.PointId(num=one.id), score=one.score, version=one.version)
        return grpc.QueryBatchResponse(result=[grpc.BatchResult(result=map(point, ranked)) for ranked in lists])


def checked(method, key):
    """A method that checks credentials and fields first, and ends with a status."""

    def call(request, context):
        try:
            if key is not None and dict(context.invocation_metadata()).get("api-key") != key:
                raise Refused(rpc.StatusCode.UNAUTHENTICATED, "Must provide an API key or an Authorization bearer token")
            known(request)
            return method(request, context)
        except Refused as refused:
            context.abort(refused.code, str(refused))
        except Exception as error:
            context.abort(rpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key")
    args = parser.parse_args()
    servicer = Server(args.data)
    for name in dir(servicer):
        if name[0].isupper():
            setattr(servicer, name, checked(getattr(servicer, name), args.api_key))
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = rpc.server(futures.ThreadPoolExecutor(8), options=[*sizes, ("grpc.so_reuseport", 0)])
    grpc.add_QdrantServicer_to_server(servicer, server)
    grpc.add_CollectionsServicer_to_server(servicer, server)
    grpc.add_PointsServicer_to_server(servicer, server)
    print(server.add_insecure_port(f"127.0.0.1:{args.port}"), flush=True)
    server.start()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
