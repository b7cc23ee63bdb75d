// Package nowhere has no rule.
package nowhere
