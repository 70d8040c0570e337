package validate

// Shortened returns how often what HAProxy is asked about in short was bound.
func Shortened(c *Checker) int { return c.short.made }
