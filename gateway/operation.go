package gateway

import (
	"slices"
	"strings"

	"github.com/objcached/objcached/descriptor"
)

// level is what a request addresses.
type level uint8

const (
	onService level = iota
	onBucket
	onObject
)

// action is what an operation does to its bucket; authorize checks it.
type action uint8

const (
	actNone   action = iota // no bucket, or the handler checks by itself
	actRead                 // reads objects
	actWrite                // writes or deletes objects
	actList                 // looks at the bucket or its listing
	actCreate               // makes the bucket
	actDrop                 // deletes the bucket
)

// operation is one row of the table: what a request must look like, what it
// may do, and who answers it.
type operation struct {
	name   string
	method string
	level  level
	query  []string // sub-resources that must be present; no others may be
	header string   // header that must be present, canonical; "" for none
	action action
	handle handler
}

// operations is the whole interface. Of two rows that match, the first wins,
// so rows that ask for more stand above those that ask for less.
var operations []operation

func init() {
	// Assigned here because handlers refer back to the table.
	operations = slices.Concat(kvOperations, s3Operations, configOperations)
}

// kvOperations are the KV cache requests; their handlers are in kv*.go.
var kvOperations = []operation{
	{"KVGet", "POST", onBucket, []string{"kv-get"}, "", actRead, (*Gateway).kvGet},
	{"KVMatch", "POST", onBucket, []string{"kv-match"}, "", actRead, (*Gateway).kvMatch},
	{"KVPut", "POST", onBucket, []string{"kv-put"}, "", actWrite, (*Gateway).kvPut},
	{"KVRegister", "POST", onService, []string{"kv-register"}, "", actNone, (*Gateway).kvRegister},
	{"KVRegister", "POST", onBucket, []string{"kv-register"}, "", actRead, (*Gateway).kvRegister},
	{"KVGetObject", "GET", onObject, nil, "X-Kv-Descriptor", actRead, (*Gateway).kvGetObject},
	{"GetObjectRDMA", "GET", onObject, nil, descriptor.ObjectTargetHeader, actRead, (*Gateway).getObjectInto},
	{"GetObjectRDMA", "GET", onObject, []string{"partNumber"}, descriptor.ObjectTargetHeader, actRead, (*Gateway).getObjectInto},
	{"PutObjectRDMA", "PUT", onObject, nil, descriptor.ObjectTargetHeader, actWrite, (*Gateway).putObjectFrom},
	{"UploadPartRDMA", "PUT", onObject, []string{"partNumber", "uploadId"}, descriptor.ObjectTargetHeader, actWrite, (*Gateway).uploadPartFrom},
	{"GetObjectRDMA", "GET", onObject, nil, "X-Amz-Rdma-Token", actRead, (*Gateway).kvObjectToken},
	{"GetObjectRDMA", "GET", onObject, []string{"partNumber"}, "X-Amz-Rdma-Token", actRead, (*Gateway).kvObjectToken},
	{"PutObjectRDMA", "PUT", onObject, nil, "X-Amz-Rdma-Token", actWrite, (*Gateway).kvObjectToken},
	{"UploadPartRDMA", "PUT", onObject, []string{"partNumber", "uploadId"}, "X-Amz-Rdma-Token", actWrite, (*Gateway).kvObjectToken},
}

// s3Operations are the S3 requests.
var s3Operations = []operation{
	{"ListBuckets", "GET", onService, nil, "", actNone, (*Gateway).listBuckets},

	{"CreateBucket", "PUT", onBucket, nil, "", actCreate, (*Gateway).createBucket},
	{"HeadBucket", "HEAD", onBucket, nil, "", actList, (*Gateway).headBucket},
	{"DeleteBucket", "DELETE", onBucket, nil, "", actDrop, (*Gateway).deleteBucket},
	{"GetBucketLocation", "GET", onBucket, []string{"location"}, "", actList, (*Gateway).getBucketLocation},
	{"PutBucketTagging", "PUT", onBucket, []string{"tagging"}, "", actWrite, (*Gateway).putBucketTagging},
	{"GetBucketTagging", "GET", onBucket, []string{"tagging"}, "", actList, (*Gateway).getBucketTagging},
	{"DeleteBucketTagging", "DELETE", onBucket, []string{"tagging"}, "", actWrite, (*Gateway).deleteBucketTagging},
	{"ListMultipartUploads", "GET", onBucket, []string{"uploads"}, "", actList, (*Gateway).listUploads},
	{"ListObjectsV2", "GET", onBucket, []string{"list-type"}, "", actList, (*Gateway).listObjectsV2},
	{"ListObjects", "GET", onBucket, nil, "", actList, (*Gateway).listObjects},
	{"DeleteObjects", "POST", onBucket, []string{"delete"}, "", actWrite, (*Gateway).deleteObjects},

	{"CreateMultipartUpload", "POST", onObject, []string{"uploads"}, "", actWrite, (*Gateway).createUpload},
	{"UploadPartCopy", "PUT", onObject, []string{"partNumber", "uploadId"}, "X-Amz-Copy-Source", actWrite, (*Gateway).uploadPartCopy},
	{"UploadPart", "PUT", onObject, []string{"partNumber", "uploadId"}, "", actWrite, (*Gateway).uploadPart},
	{"CompleteMultipartUpload", "POST", onObject, []string{"uploadId"}, "", actWrite, (*Gateway).completeUpload},
	{"AbortMultipartUpload", "DELETE", onObject, []string{"uploadId"}, "", actWrite, (*Gateway).abortUpload},
	{"ListParts", "GET", onObject, []string{"uploadId"}, "", actList, (*Gateway).listParts},

	{"PutObjectTagging", "PUT", onObject, []string{"tagging"}, "", actWrite, (*Gateway).putObjectTagging},
	{"GetObjectTagging", "GET", onObject, []string{"tagging"}, "", actRead, (*Gateway).getObjectTagging},
	{"DeleteObjectTagging", "DELETE", onObject, []string{"tagging"}, "", actWrite, (*Gateway).deleteObjectTagging},

	{"CopyObject", "PUT", onObject, nil, "X-Amz-Copy-Source", actWrite, (*Gateway).copyObject},
	{"PutObject", "PUT", onObject, nil, "", actWrite, (*Gateway).putObject},
	{"GetObject", "GET", onObject, nil, "", actRead, (*Gateway).getObject},
	{"GetObject", "GET", onObject, []string{"partNumber"}, "", actRead, (*Gateway).getObject},
	{"GetObjectAttributes", "GET", onObject, []string{"attributes"}, "", actRead, (*Gateway).getObjectAttributes},
	{"HeadObject", "HEAD", onObject, nil, "", actRead, (*Gateway).headObject},
	{"HeadObject", "HEAD", onObject, []string{"partNumber"}, "", actRead, (*Gateway).headObject},
	{"DeleteObject", "DELETE", onObject, nil, "", actWrite, (*Gateway).deleteObject},
}

// configOperations are what can be said of a bucket's configuration; their
// handlers are in config.go.
var configOperations = []operation{
	{"GetBucketVersioning", "GET", onBucket, []string{"versioning"}, "", actList, always(emptyConfig{root("VersioningConfiguration")})},
	{"GetBucketAcl", "GET", onBucket, []string{"acl"}, "", actList, (*Gateway).getACL},
	{"PutBucketAcl", "PUT", onBucket, []string{"acl"}, "", actWrite, (*Gateway).putACL},
	{"GetObjectAcl", "GET", onObject, []string{"acl"}, "", actRead, (*Gateway).getACL},
	{"PutObjectAcl", "PUT", onObject, []string{"acl"}, "", actWrite, (*Gateway).putACL},
	{"GetBucketOwnershipControls", "GET", onBucket, []string{"ownershipControls"}, "", actList, always(enforced)},
	{"PutBucketOwnershipControls", "PUT", onBucket, []string{"ownershipControls"}, "", actWrite, (*Gateway).putOwnership},
	{"GetPublicAccessBlock", "GET", onBucket, []string{"publicAccessBlock"}, "", actList, always(private)},
	{"PutPublicAccessBlock", "PUT", onBucket, []string{"publicAccessBlock"}, "", actWrite, (*Gateway).putPublicAccess},

	{"GetBucketPolicy", "GET", onBucket, []string{"policy"}, "", actList, unset("NoSuchBucketPolicy", "The bucket policy does not exist")},
	{"GetBucketPolicyStatus", "GET", onBucket, []string{"policyStatus"}, "", actList, unset("NoSuchBucketPolicy", "The bucket policy does not exist")},
	{"DeleteBucketPolicy", "DELETE", onBucket, []string{"policy"}, "", actWrite, nothingToDelete},
	{"GetBucketCors", "GET", onBucket, []string{"cors"}, "", actList, unset("NoSuchCORSConfiguration", "The CORS configuration does not exist")},
	{"DeleteBucketCors", "DELETE", onBucket, []string{"cors"}, "", actWrite, nothingToDelete},
	{"GetBucketLifecycleConfiguration", "GET", onBucket, []string{"lifecycle"}, "", actList, unset("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")},
	{"DeleteBucketLifecycle", "DELETE", onBucket, []string{"lifecycle"}, "", actWrite, nothingToDelete},
	{"GetBucketWebsite", "GET", onBucket, []string{"website"}, "", actList, unset("NoSuchWebsiteConfiguration", "The specified bucket does not have a website configuration")},
	{"DeleteBucketWebsite", "DELETE", onBucket, []string{"website"}, "", actWrite, nothingToDelete},
	{"GetBucketReplication", "GET", onBucket, []string{"replication"}, "", actList, unset("ReplicationConfigurationNotFoundError", "The replication configuration was not found")},
	{"DeleteBucketReplication", "DELETE", onBucket, []string{"replication"}, "", actWrite, nothingToDelete},
	{"GetBucketEncryption", "GET", onBucket, []string{"encryption"}, "", actList, unset("ServerSideEncryptionConfigurationNotFoundError", "The server side encryption configuration was not found")},
	{"DeleteBucketEncryption", "DELETE", onBucket, []string{"encryption"}, "", actWrite, nothingToDelete},
	{"GetObjectLockConfiguration", "GET", onBucket, []string{"object-lock"}, "", actList, unset("ObjectLockConfigurationNotFoundError", "Object Lock configuration does not exist for this bucket")},

	{"GetBucketLogging", "GET", onBucket, []string{"logging"}, "", actList, always(emptyConfig{root("BucketLoggingStatus")})},
	{"GetBucketNotificationConfiguration", "GET", onBucket, []string{"notification"}, "", actList, always(emptyConfig{root("NotificationConfiguration")})},
	{"GetBucketAccelerateConfiguration", "GET", onBucket, []string{"accelerate"}, "", actList, always(emptyConfig{root("AccelerateConfiguration")})},
	{"GetBucketRequestPayment", "GET", onBucket, []string{"requestPayment"}, "", actList, always(requestPayment{root("RequestPaymentConfiguration"), "BucketOwner"})},
}

// subresources are the query parameters that select another operation. One
// that the matched row does not name makes the request 501: taking
// GET /key?acl for GET /key would be a wrong success.
var subresources = map[string]bool{
	"abac": true, "accelerate": true, "acl": true, "analytics": true, "annotation": true,
	"append": true, "attributes": true, "cors": true, "delete": true, "encryption": true,
	"intelligent-tiering": true, "inventory": true, "legal-hold": true, "lifecycle": true,
	"list-type": true, "location": true, "logging": true, "metadataAnnotationTable": true, "metadataConfiguration": true,
	"metadataInventoryTable": true, "metadataJournalTable": true, "metadataTable": true,
	"metrics": true, "notification": true, "object-lock": true, "ownershipControls": true,
	"partNumber": true, "policy": true, "policyStatus": true, "publicAccessBlock": true, "renameObject": true,
	"replication": true, "requestPayment": true, "restore": true, "retention": true,
	"select": true, "select-type": true, "session": true, "tagging": true, "torrent": true,
	"uploadId": true, "uploads": true, "versionId": true, "versioning": true, "versions": true, "website": true,
	"kv-get": true, "kv-match": true, "kv-put": true, "kv-register": true,
}

// findOperation returns the row that r asks for.
func findOperation(r *request) (*operation, error) {
	lvl := onObject
	if r.Bucket == "" {
		lvl = onService
	} else if r.Key == "" {
		lvl = onBucket
	}
	if lvl == onObject && r.Query.Get("versionId") == "null" {
		// Without versioning every object is the null version.
		delete(r.Query, "versionId")
	}
	known := false
	for i := range operations {
		op := &operations[i]
		if op.level != lvl || op.method != r.Method {
			continue
		}
		known = true
		if op.matches(r) {
			return op, nil
		}
	}
	for name := range r.Query {
		if subresources[name] {
			return nil, notImplemented("the sub-resource %q", name)
		}
	}
	if known {
		return nil, notImplemented("this form of %s", r.Method)
	}
	return nil, fail("MethodNotAllowed", "The specified method is not allowed against this resource.").
		with("Method", r.Method).header("Allow", allowed(lvl))
}

// allowed lists the methods of a level, for the header of that name.
func allowed(lvl level) string {
	var methods []string
	for i := range operations {
		if operations[i].level == lvl {
			methods = append(methods, operations[i].method)
		}
	}
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ", ")
}

func (op *operation) matches(r *request) bool {
	for _, q := range op.query {
		if !r.has(q) {
			return false
		}
	}
	for name := range r.Query {
		if subresources[name] && !slices.Contains(op.query, name) {
			return false
		}
	}
	return op.header == "" || len(r.Header[op.header]) > 0
}
