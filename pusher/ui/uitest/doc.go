// Package uitest looks at the page of a fleet in a real browser: that each tab is there in light and dark and
// without JavaScript, that people with a screen reader can use it, that it lives on after a lost connection, and
// that no name in the cluster becomes a part of it. It has nothing but tests.
package uitest
