// Package ci holds the pipelines of examples/ci, whose steps its test runs as far as that goes without a forge.
package ci
