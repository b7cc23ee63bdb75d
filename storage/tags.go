package storage

// Tag is one tag of an object. Their order is the client's.
type Tag struct{ Key, Value string }

// MaxBucketConfig is the largest setting of a bucket, in bytes.
const MaxBucketConfig = 64 << 10
