"""Prints a collection as Qdrant's own client reads it: python client.py PORT COLLECTION."""

import sys

from qdrant_client import QdrantClient

port, name = sys.argv[1:]
client = QdrantClient(host="127.0.0.1", grpc_port=int(port), prefer_grpc=True, check_compatibility=False)
collection = client.get_collection(name)
for key, value in sorted(collection.config.metadata.items()):
    print("metadata", key, value)
for key, index in sorted(collection.payload_schema.items()):
    print("index", key, index.data_type.value)
for key, vector in sorted(collection.config.params.vectors.items()):
    print("vector", key, vector.size, vector.distance.value, f"m={vector.hnsw_config.m}")
points, following = client.scroll(name, limit=1000, with_vectors=["embedding"])
assert following is None
for point in points:
    fields = sorted(point.payload.items())
    print("point", point.id, point.vector["embedding"], *(f"{key}={value}" for key, value in fields if key != "digest"))
