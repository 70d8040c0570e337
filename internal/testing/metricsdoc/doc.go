// Package metricsdoc writes the table of a registry's metrics into a page, and
// finds the metrics that a page speaks of. It is for the tests that keep the page
// true, and takes type, labels and help from the registry itself.
package metricsdoc
