package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/objcached/objcached/client"
	"github.com/objcached/objcached/client/clienttest"
	"github.com/objcached/objcached/descriptor"
)

// Store the chunks of a prompt, then get them back layer by layer.
func Example() {
	store := clienttest.New() // or objcached, or any S3 store
	defer store.Close()
	c, err := client.New(client.Config{
		Endpoint: store.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	// What the cached bytes depend on, and the prompt: 3 chunks of 16 tokens.
	root := descriptor.Root{
		Model: "llama", Revision: "v1", DType: "bfloat16", NumLayers: 4, PerLayerChunkBytes: 1024,
		Layout: descriptor.L2TD, ChunkTokens: 16, TPSize: 1,
	}
	keys, err := root.Keys(make([]uint32, 48))
	if err != nil {
		log.Fatal(err)
	}

	// Prefill has made the cache of the first two chunks.
	chunks := make([]client.Chunk, 2)
	for j := range chunks {
		chunks[j] = client.Chunk{Key: keys[j], Data: bytes.Repeat([]byte{byte('a' + j)}, 4*1024)}
	}
	client.Chain(chunks, "", 0)
	put, err := c.PutChunks(ctx, chunks)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored", put.Stored)

	// Another worker sees the same prompt.
	n, err := c.Match(ctx, keys)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("matched", n, "of", len(keys))
	layers, err := c.GetLayers(ctx, client.GetRequest{
		Keys: keys[:n], NumLayers: 4, PerLayerChunkBytes: 1024, ChunkTokens: 16,
	})
	if err != nil {
		log.Fatal(err)
	}
	for layer, err := range layers.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("layer %d: %d bytes, chunk 0 %c, chunk 1 %c\n", layer.Index, len(layer.Data), layer.Chunk(0)[0], layer.Chunk(1)[0])
	}
	// Output:
	// stored 2
	// matched 2 of 3
	// layer 0: 2048 bytes, chunk 0 a, chunk 1 b
	// layer 1: 2048 bytes, chunk 0 a, chunk 1 b
	// layer 2: 2048 bytes, chunk 0 a, chunk 1 b
	// layer 3: 2048 bytes, chunk 0 a, chunk 1 b
}

// Receive a window of the layers in memory of one's own, as many chunks as there are.
func ExampleClient_GetLayers_into() {
	store := clienttest.New()
	defer store.Close()
	c, err := client.New(client.Config{
		Endpoint: store.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, key := range []string{"first", "second"} {
		chunk := client.Chunk{Key: key, Data: bytes.Repeat([]byte(key[:1]), 8*100), Index: -1}
		if _, err := c.PutChunks(context.Background(), []client.Chunk{chunk}); err != nil {
			log.Fatal(err)
		}
	}

	gpu := make([]byte, 3*2*100) // 3 chunks, 2 layers, 100 bytes
	layers, err := c.GetLayers(context.Background(), client.GetRequest{
		Keys: []string{"first", "second", "third"}, NumLayers: 8, PerLayerChunkBytes: 100,
		FirstLayer: 6, OnMissing: descriptor.Truncate, Into: gpu,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("chunks:", layers.Matched())
	for layer, err := range layers.All() {
		if err != nil {
			log.Fatal(err)
		}
		at := (layer.Index - 6) * layers.Matched() * 100
		fmt.Println("layer", layer.Index, "is ready in gpu:", &layer.Data[0] == &gpu[at])
	}
	// Output:
	// chunks: 2
	// layer 6 is ready in gpu: true
	// layer 7 is ready in gpu: true
}

// Errors say what is wrong and how far things came.
func ExampleError() {
	store := clienttest.New()
	defer store.Close()
	c, err := client.New(client.Config{
		Endpoint: store.URL, AccessKey: clienttest.AccessKey, SecretKey: clienttest.SecretKey, Bucket: clienttest.Bucket,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	store.Put("first", make([]byte, 200))

	_, err = c.GetLayers(context.Background(), client.GetRequest{
		Keys: []string{"first", "second"}, NumLayers: 2, PerLayerChunkBytes: 100,
	})
	var e *client.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.Key, "after", e.Matched)
	}
	// Output:
	// NoSuchKey second after 1
}
