//go:build fabric

package doctor

const fabricBuilt = true
