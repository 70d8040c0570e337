// Package runtest runs the rendered chart: the pods of all three parts with their own
// images, against an API server, with the permissions that the chart gives them.
package runtest
