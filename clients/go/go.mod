module loopguard

go 1.23
