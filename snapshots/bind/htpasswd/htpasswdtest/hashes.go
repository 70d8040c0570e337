// Package htpasswdtest has hashes of passwords for tests.
package htpasswdtest

// Hashes are of "correct horse", one of each kind that HAProxy checks.
var Hashes = map[string]string{
	"bcrypt 2a":            "$2a$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2",
	"bcrypt 2b":            "$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2",
	"bcrypt 2y":            "$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2",
	"SHA-256":              "$5$abcdefgh$ruMep1ijHnJPZbETDNiumskxcX3kN4lzZd5VlsqE7eB",
	"SHA-256 with rounds":  "$5$rounds=1000$abcdefgh$ue35C0ITbth1b5zVUjrjm2mMmsmMKiodEeH2UV/Hq10",
	"SHA-512":              "$6$abcdefgh$yIZAF3gQPvtKZO/9qOJKffAKKbtS3ef3qmwyugk4uWVjX8YZf/GV3A8SkFxEPY0T56CcilGrHKLffBsp6dLMG.",
	"MD5":                  "$1$abcdefgh$y6iHhJNbuC0xpbk0w9pm80",
	"DES":                  "abhfCpXqd4GrI",
	"yescrypt":             "$y$j75$abcdefghijklmnop$1kKL1r02wT4HlcktLfzeoOHd1GFgv7Ay4JeEbqGj80B",
	"yescrypt of mkpasswd": "$y$j9T$abcdefghijklmnop$0Hi8KsZH/hAMRN9Bam6ce3nmi5QAIz3R/KeaXG/c7p9",
	"costly bcrypt":        "$2y$10$abcdefghijklmnopqrstuu23JPZtHcGhwXSF41f93o/7vBdDut3Xu",
}
