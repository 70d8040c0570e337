// Package ci holds the pipelines of examples/ci. Its test runs their steps, as far as they need no forge.
package ci
