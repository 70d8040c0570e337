package leak

// Searched returns how many files an Index searched.
func Searched(x *Index) int { return x.searched }
