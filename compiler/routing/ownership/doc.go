// Package ownership says whom hosts belong to, and which of two objects gets what both claim:
// the older one.
package ownership
