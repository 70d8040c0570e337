// Package uitest tests the page of a fleet in a real browser. Each tab must work in light, in dark and without
// JavaScript, be accessible to screen readers, recover from a lost connection, and escape every name of the cluster.
package uitest
