package tenant

// The rules. A bucket belongs to the user who made it. Beyond its own buckets
// a user reaches those whose names match one of its patterns, whoever owns
// them: patterns are given by the operator and may lead into other tenants.
//
// A name outside of a user's reach is answered with 403 AccessDenied whether
// or not a bucket has it, so that nobody learns the names of others by asking
// for them. For a bucket that does not exist, ask MayAccess with an empty owner and
// tenant: true means that 404 NoSuchBucket may be said. Only CreateBucket
// tells a user who may create it that a name is taken; names are shared by
// all, as in S3.

// MayAccess reports whether id may use the bucket of that name, owner and
// owner's tenant. A nil id is an anonymous request, which may use none.
func MayAccess(id *Identity, bucket, owner, ownerTenant string) bool {
	switch {
	case id == nil:
		return false
	case id.Root:
		return true
	case id.Name != "" && id.Name == owner && id.Tenant == ownerTenant:
		return true
	}
	return matchAny(id.Buckets, bucket)
}

// MayCreate reports whether id may create a bucket of that name: any name if
// it has no patterns, else those that match one.
func MayCreate(id *Identity, bucket string) bool {
	switch {
	case id == nil:
		return false
	case id.Root, len(id.Buckets) == 0:
		return true
	}
	return matchAny(id.Buckets, bucket)
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if Match(p, name) {
			return true
		}
	}
	return false
}

// Match reports whether the whole name matches the pattern: '*' stands for any
// run of bytes, also none, '?' for one byte, everything else for itself. It
// takes at most len(pattern)*len(name) steps: on a mismatch only the last star
// grows, because an earlier one cannot help.
func Match(pattern, name string) bool {
	p, n := 0, 0
	star, from := -1, 0 // the last star, and where in name its run ends
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
